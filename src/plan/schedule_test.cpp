#include "plan/schedule.h"

#include <gtest/gtest.h>

namespace espalier::plan {
namespace {

std::string text(const std::vector<Action>& actions) {
  std::string line;
  for (const Action& action : actions)
    line += (action.kind == Action::Kind::kForward ? "F" : "B") + std::to_string(action.micro_batch) + " ";
  return line;
}

// The tables are those of Narayanan et al. 2021, figure 4 (top), written out by hand.
TEST(Schedule1F1B, MatchesTheTablesDrawnByHand) {
  EXPECT_EQ(text(schedule_1f1b(1, 0, 3)), "F0 B0 F1 B1 F2 B2 ");
  EXPECT_EQ(text(schedule_1f1b(4, 0, 5)), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4 ");
  EXPECT_EQ(text(schedule_1f1b(4, 2, 5)), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4 ");
  EXPECT_EQ(text(schedule_1f1b(4, 3, 5)), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 ");
}

TEST(Schedule1F1B, FewerMicroBatchesThanStagesRunsAllForwardsFirst) {
  EXPECT_EQ(text(schedule_1f1b(4, 0, 2)), "F0 F1 B0 B1 ");
  EXPECT_EQ(text(schedule_1f1b(4, 2, 1)), "F0 B0 ");
}

}  // namespace
}  // namespace espalier::plan
