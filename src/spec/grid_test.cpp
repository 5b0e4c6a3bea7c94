#include "spec/grid.h"

#include <gtest/gtest.h>

#include <vector>

namespace espalier::spec {
namespace {

// Ranks that differ from `rank` along one axis only, found by trying all.
std::vector<int64_t> group_of(const GridShape& shape, int64_t rank, int64_t GridPosition::*axis) {
  std::vector<int64_t> ranks;
  for (int64_t other = 0; other < shape.num_ranks(); ++other) {
    GridPosition mine = position_of(shape, rank), theirs = position_of(shape, other);
    mine.*axis = theirs.*axis = 0;
    if (mine == theirs) ranks.push_back(other);
  }
  return ranks;
}

// The example of Megatron's parallel_state: 16 ranks, tensor 2, pipeline 4, data 2.
TEST(Grid, GroupsOfSixteenRanksAreMegatrons) {
  const GridShape shape{.tensor = 2, .data = 2, .pipeline = 4};
  EXPECT_EQ(group_of(shape, 0, &GridPosition::tensor), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(group_of(shape, 0, &GridPosition::data), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(group_of(shape, 7, &GridPosition::data), (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(group_of(shape, 0, &GridPosition::pipeline), (std::vector<int64_t>{0, 4, 8, 12}));
  EXPECT_EQ(group_of(shape, 15, &GridPosition::pipeline), (std::vector<int64_t>{3, 7, 11, 15}));
}

TEST(Grid, RankAndPositionAreInverse) {
  const GridShape shape{.tensor = 3, .context = 2, .data = 5, .pipeline = 7};
  for (int64_t rank = 0; rank < shape.num_ranks(); ++rank) EXPECT_EQ(rank_of(shape, position_of(shape, rank)), rank);
}

TEST(Grid, IsNamedByItsAxes) {
  EXPECT_EQ(to_string(GridShape{}), "tp1pp1dp1");
  EXPECT_EQ(to_string(GridShape{.tensor = 2, .context = 4, .data = 3, .pipeline = 1}), "tp2cp4pp1dp3");
}

}  // namespace
}  // namespace espalier::spec
