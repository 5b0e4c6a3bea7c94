// The order in which --canonical-reduction adds what the micro-batches of a step give: a balanced binary tree over
// their numbers in the step, the same whatever ranks have them.
//
// A node {level, index} is the sum of micro-batches [index << level, (index + 1) << level): of its left half, and then
// its right half. Where the number of micro-batches is no power of two some nodes have no other half; they are added
// from the right. Eleven micro-batches: ((0+1) + (2+3)) + ((4+5) + (6+7)) = a; a + ((8+9) + 10).
#pragma once

#include <cstdint>
#include <vector>

#include "spec/shard.h"

namespace espalier::plan {

struct SumNode {
  int level = 0;
  int64_t index = 0;
  bool operator==(const SumNode&) const = default;
};

// Whether they are the left and the right half of one node.
bool are_halves(const SumNode& left, const SumNode& right);
SumNode parent(const SumNode& node);

// Micro-batches of the step, of `num_micro_batches` in all, that a replica has where each has neighbours.
spec::IndexRange block_of_replica(int64_t num_micro_batches, int64_t replica, int64_t num_replicas);

// What a replica can add by itself of micro-batches [begin, end): the largest nodes that they are made of, in order.
std::vector<SumNode> whole_nodes(int64_t begin, int64_t end);

// What every replica sends: the nodes of its block; where there is one replica, the whole sum as node {0, 0}.
std::vector<std::vector<SumNode>> nodes_of_replicas(int64_t num_micro_batches, int64_t num_replicas);

// How many sums a replica keeps at most beside the gradient that is being computed while it adds its block.
int64_t most_sums_kept(int64_t begin, int64_t end);
// The same of the replica that keeps most.
int64_t most_sums_kept_of_replicas(int64_t num_micro_batches, int64_t num_replicas);

// Where replicas take turns, and every rank adds what all of them have: the sums kept at most while a round is
// computed.
int64_t most_sums_kept_between_rounds(int64_t num_rounds, int64_t num_replicas);

}  // namespace espalier::plan
