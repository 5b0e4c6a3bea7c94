// The keys of the store by which launchers meet, and the last will that each keeps there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/rendezvous_store.h"

namespace espalier::launch::internal {

inline constexpr const char* kRoundKey = "launch/round";
inline constexpr const char* kOverKey = "launch/over";            // the run: kRoundDone or kRoundFailed
inline constexpr const char* kLaunchersKey = "launch/launchers";  // the cards of all that ever came, one a line
inline constexpr const char* kSomebodyLeft = "somebody-left";

std::string key_of(int64_t round, const std::string& name);
std::string left_key(int64_t round, const std::string& id);  // of a launcher that has left the round
std::string gone_key(const std::string& id);                 // of one that has left the run, in whatever round

// The last will of the launcher `id`: that it has left this round and the run, and what else these keys say.
void leave_departure(RendezvousStore& store, int64_t round, const std::string& id, std::vector<std::string> keys = {},
                     std::vector<std::string> values = {});

}  // namespace espalier::launch::internal
