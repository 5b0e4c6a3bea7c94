#include "plan/sum_tree.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

namespace espalier::plan {
namespace {

using Nodes = std::vector<SumNode>;

TEST(SumTree, ABlockIsTheLargestNodesThatItIsMadeOf) {
  EXPECT_EQ(whole_nodes(0, 8), (Nodes{{3, 0}}));
  EXPECT_EQ(whole_nodes(4, 8), (Nodes{{2, 1}}));
  EXPECT_EQ(whole_nodes(0, 3), (Nodes{{1, 0}, {0, 2}}));
  EXPECT_EQ(whole_nodes(3, 6), (Nodes{{0, 3}, {1, 2}}));
  EXPECT_EQ(whole_nodes(5, 11), (Nodes{{0, 5}, {1, 3}, {1, 4}, {0, 10}}));
  EXPECT_EQ(whole_nodes(7, 7), Nodes{});
}

TEST(SumTree, ReplicasSendTheirNodesAndOneAloneTheSum) {
  EXPECT_EQ(nodes_of_replicas(12, 3), (std::vector<Nodes>{{{2, 0}}, {{2, 1}}, {{2, 2}}}));
  EXPECT_EQ(nodes_of_replicas(12, 2), (std::vector<Nodes>{{{2, 0}, {1, 2}}, {{1, 3}, {2, 2}}}));
  EXPECT_EQ(nodes_of_replicas(7, 1), (std::vector<Nodes>{{{0, 0}}}));
}

TEST(SumTree, HalvesOfANodeAreJoined) {
  EXPECT_TRUE(are_halves({1, 4}, {1, 5}));
  EXPECT_FALSE(are_halves({1, 5}, {1, 6}));
  EXPECT_FALSE(are_halves({1, 4}, {2, 5}));
  EXPECT_EQ(parent({1, 5}), (SumNode{2, 2}));
}

// A power of two of micro-batches keeps one sum for each halving; the last one needs none of its own.
TEST(SumTree, AsManySumsAreKeptAsTheTreeIsDeep) {
  EXPECT_EQ(most_sums_kept(0, 1), 0);
  EXPECT_EQ(most_sums_kept(0, 2), 1);
  EXPECT_EQ(most_sums_kept(0, 4), 2);
  EXPECT_EQ(most_sums_kept(8, 16), 3);
  EXPECT_EQ(most_sums_kept(0, 64), 6);
  EXPECT_EQ(most_sums_kept(5, 11), 3);
  EXPECT_EQ(most_sums_kept_of_replicas(22, 2), 4);
  EXPECT_EQ(most_sums_kept_between_rounds(8, 2), 3);  // after 14 of 16
  EXPECT_EQ(most_sums_kept_between_rounds(1, 16), 0);
}

}  // namespace
}  // namespace espalier::plan
