#include "plan/schedule.h"

#include <gtest/gtest.h>

namespace espalier::plan {
namespace {

using Kind = Action::Kind;
using Tables = std::vector<std::vector<Action>>;

// The tables are those of Narayanan et al. 2021, figure 4 (top), written out by hand.
TEST(Schedule1F1B, MatchesTheTablesDrawnByHand) {
  EXPECT_EQ(to_string(schedule_1f1b(1, 0, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(to_string(schedule_1f1b(4, 0, 5)), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4");
  EXPECT_EQ(to_string(schedule_1f1b(4, 2, 5)), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  EXPECT_EQ(to_string(schedule_1f1b(4, 3, 5)), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
}

TEST(Schedule1F1B, FewerMicroBatchesThanStagesRunsAllForwardsFirst) {
  EXPECT_EQ(to_string(schedule_1f1b(4, 0, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(to_string(schedule_1f1b(4, 2, 1)), "F0 B0");
}

// Figure 4 (bottom): 4 devices, 8 micro-batches, 2 chunks; its devices 1 and 4. Warm-up of device 1: 2 * 3 + 4.
TEST(ScheduleInterleaved, MatchesTheTablesDrawnByHand) {
  EXPECT_EQ(to_string(schedule_interleaved(4, 0, 8, 2), 2),
            "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 F5.0 F6.0 B0.1 F7.0 B1.1 F4.1 B2.1 F5.1 B3.1 F6.1 B0.0 "
            "F7.1 B1.0 B2.0 B3.0 B4.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0");
  EXPECT_EQ(to_string(schedule_interleaved(4, 3, 8, 2), 2),
            "F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 F4.0 B0.0 F5.0 B1.0 F6.0 B2.0 F7.0 B3.0 "
            "F4.1 B4.1 F5.1 B5.1 F6.1 B6.1 F7.1 B7.1 B4.0 B5.0 B6.0 B7.0");
  EXPECT_EQ(to_string(schedule_interleaved(2, 0, 2, 2), 2), "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0");
}

// Qi et al. 2023, figure 3 (ZB-H1), its devices 1 and 4: the last one holds back as many weight gradients as there are
// stages before it.
TEST(ScheduleZeroBubble, MatchesTheTablesDrawnByHand) {
  EXPECT_EQ(to_string(schedule_zero_bubble(4, 0, 5)), "F0 F1 F2 F3 B0 W0 F4 B1 W1 B2 W2 B3 W3 B4 W4");
  EXPECT_EQ(to_string(schedule_zero_bubble(4, 3, 5)), "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 W2 W3 W4");
  EXPECT_EQ(to_string(schedule_zero_bubble(1, 0, 2)), "F0 B0 W0 F1 B1 W1");
}

TEST(ScheduleForward, TakesGroupsThroughAllChunks) {
  EXPECT_EQ(to_string(make_forward_schedule(4, 3)), "F0 F1 F2");
  EXPECT_EQ(to_string(make_forward_schedule(2, 3, 2), 2), "F0.0 F1.0 F0.1 F1.1 F2.0 F2.1");
}

TEST(Schedules, AllOfUpToEightStagesPassTheCheck) {
  for (int64_t stages = 1; stages <= 8; ++stages) {
    for (const int64_t micro_batches : {1, 2, 3, 7, 8, 33}) {
      for (const ScheduleKind kind : {ScheduleKind::k1F1B, ScheduleKind::kZeroBubble})
        EXPECT_EQ(check_schedule(make_schedules(kind, stages, micro_batches), micro_batches, 1), "")
            << to_string(kind) << " " << stages << " stages, " << micro_batches << " micro-batches";
      for (const int64_t chunks : {1, 2, 3, 7}) {
        const int64_t groups = micro_batches * stages;
        EXPECT_EQ(check_schedule(make_schedules(ScheduleKind::kInterleaved, stages, groups, chunks), groups, chunks),
                  "")
            << stages << " stages, " << groups << " micro-batches, " << chunks << " chunks";
        const Tables forwards(static_cast<size_t>(stages), make_forward_schedule(stages, micro_batches, chunks));
        EXPECT_EQ(check_schedule(forwards, micro_batches, chunks, true), "")
            << stages << " stages, " << micro_batches << " micro-batches, " << chunks << " chunks";
      }
    }
  }
}

TEST(Schedules, TheCheckFindsEachKindOfMistake) {
  const Action f0{Kind::kForward, 0}, f1{Kind::kForward, 1}, b0{Kind::kBackward, 0}, b1{Kind::kBackward, 1};
  const Action w0{Kind::kWeightGrad, 0}, w1{Kind::kWeightGrad, 1};
  const std::vector<Action> last = {f0, b0, f1, b1};
  EXPECT_EQ(check_schedule({{f0, f1, b0, b1}, last}, 2, 1), "");
  EXPECT_EQ(check_schedule({{f0, f1, b0}, last}, 2, 1),
            "stage 0 has 2 forwards, 1 backwards and 0 weight gradients of 2");
  EXPECT_EQ(check_schedule({{f0, f1, b0, b0}, last}, 2, 1), "B0 of stage 0 comes twice");
  EXPECT_EQ(check_schedule({{b0, f0, f1, b1}, last}, 2, 1), "B0 of stage 0 comes before its forward");
  EXPECT_EQ(check_schedule({{f0, f1, b0, b1, {Kind::kForward, 2}}, last}, 2, 1), "F2 of stage 0 does not exist");
  EXPECT_EQ(check_schedule({{f1, f0, b0, b1}, last}, 2, 1), "F0 of stage 1 meets the message of F1 of stage 0");
  EXPECT_EQ(check_schedule({{f0, b0, f1, b1}, {f0, f1, b0, b1}}, 2, 1), "B0 of stage 0 waits forever");
  EXPECT_EQ(check_schedule({{f0, b0, f1, b1, w1, w0}}, 2, 1), "W1 of stage 0 is not of the oldest backward that waits");
  EXPECT_EQ(check_schedule({{f0, b0, f1, b1, w0}}, 2, 1),
            "stage 0 has 2 forwards, 2 backwards and 1 weight gradients of 2");
  EXPECT_EQ(check_schedule({{f0, f1}, {f0, f1}}, 2, 1, true), "");
}

}  // namespace
}  // namespace espalier::plan
