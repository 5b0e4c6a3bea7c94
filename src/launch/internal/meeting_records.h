// What launchers write into the rendezvous store for each other: what each says of itself, the machines of a round,
// which whoever closes their list writes, and how it ended, which whoever first knows it writes. What was written first
// holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/round.h"
#include "launch/round_ending.h"

namespace espalier::launch::internal {

std::string to_json(const Node& node);
Node node_from_json(const std::string& text);

struct World {
  std::vector<Node> nodes;  // in the order of their ranks
  int64_t last_begun = -1;  // of the rounds before it, the last that began; -1: none has
  std::string history;      // Round::history
};

std::string to_json(const World& world);
World world_from_json(const std::string& text);

struct EndRecord {
  RoundOutcome outcome = RoundOutcome::kFailed;
  std::vector<size_t> stopped;  // the machines that have said how their ranks ended
  ToldAnywhere told = ToldAnywhere::kNot;
};

std::string to_json(const EndRecord& record);
EndRecord end_record_from_json(const std::string& text);

}  // namespace espalier::launch::internal
