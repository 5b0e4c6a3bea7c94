#include "plan/sum_tree.h"

#include <algorithm>

#include "base/error.h"

namespace espalier::plan {

bool are_halves(const SumNode& left, const SumNode& right) {
  return left.level == right.level && left.index % 2 == 0 && right.index == left.index + 1;
}

SumNode parent(const SumNode& node) { return {node.level + 1, node.index / 2}; }

spec::IndexRange block_of_replica(int64_t num_micro_batches, int64_t replica, int64_t num_replicas) {
  ESPALIER_CHECK(num_micro_batches % num_replicas == 0, num_micro_batches, " micro-batches on ", num_replicas,
                 " replicas");
  const int64_t count = num_micro_batches / num_replicas;
  return {replica * count, (replica + 1) * count};
}

std::vector<SumNode> whole_nodes(int64_t begin, int64_t end) {
  std::vector<SumNode> nodes;
  for (; begin < end; begin = (nodes.back().index + 1) << nodes.back().level) {
    int level = 0;
    while (begin % (int64_t{2} << level) == 0 && begin + (int64_t{2} << level) <= end) ++level;
    nodes.push_back({level, begin >> level});
  }
  return nodes;
}

std::vector<std::vector<SumNode>> nodes_of_replicas(int64_t num_micro_batches, int64_t num_replicas) {
  std::vector<std::vector<SumNode>> nodes;
  if (num_replicas == 1) return {{SumNode{}}};
  for (int64_t replica = 0; replica < num_replicas; ++replica) {
    const spec::IndexRange block = block_of_replica(num_micro_batches, replica, num_replicas);
    nodes.push_back(whole_nodes(block.begin, block.end));
  }
  return nodes;
}

int64_t most_sums_kept(int64_t begin, int64_t end) {
  // The last micro-batch is added where it was computed, so that nothing more is kept for it.
  size_t most = 0;
  for (int64_t number = begin; number + 1 < end; ++number) most = std::max(most, whole_nodes(begin, number + 1).size());
  return static_cast<int64_t>(most);
}

int64_t most_sums_kept_of_replicas(int64_t num_micro_batches, int64_t num_replicas) {
  int64_t most = 0;
  for (int64_t replica = 0; replica < num_replicas; ++replica) {
    const spec::IndexRange block = block_of_replica(num_micro_batches, replica, num_replicas);
    most = std::max(most, most_sums_kept(block.begin, block.end));
  }
  return most;
}

int64_t most_sums_kept_between_rounds(int64_t num_rounds, int64_t num_replicas) {
  size_t most = 0;
  for (int64_t round = 0; round < num_rounds; ++round)
    most = std::max(most, whole_nodes(0, round * num_replicas).size());
  return static_cast<int64_t>(most);
}

}  // namespace espalier::plan
