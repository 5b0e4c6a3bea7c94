// What all launchers of a round begin with alike, and how it ends for all: whoever closes the list of its machines, or
// first knows the end, writes it into the rendezvous store, and each takes it from there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/node_meeting.h"

namespace espalier::launch::internal {

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

// What a launcher says of itself before.
std::string to_json(const Node& node);
Node node_from_json(const std::string& text);

}  // namespace espalier::launch::internal
