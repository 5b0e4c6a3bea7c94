// One start of the whole group: which machines take part, in the order of their ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace espalier::launch {

struct Node {
  std::string id;       // of one launcher
  std::string address;  // for the others
  int64_t pid = 0, node_rank = 0, num_ranks = 0;
  int free_port = 0;  // there, for MASTER_PORT of foreign programs
};

int64_t num_ranks(const std::vector<Node>& nodes);

struct Round {
  int64_t number = 0;       // 0, 1, ...: how often the group has been started again
  std::vector<Node> nodes;  // in the order of their ranks
  size_t node = 0;          // this one
  int64_t first_rank = 0, world_size = 0;
  bool was_without_this_node = false;  // one that began before: this machine came too late for it, or was not needed
  std::string history;                 // what was left last by NodeMeeting::leave_history(); the same for all
};

// `number`'s round of these machines, for the one with this id, which is among them.
Round make_round(int64_t number, std::vector<Node> nodes, const std::string& id, std::string history);

int64_t first_rank_of(const Round& round, size_t node);

}  // namespace espalier::launch
