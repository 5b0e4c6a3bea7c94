#include "plan/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace espalier::plan {
namespace {

Simulation run(ScheduleKind kind, int64_t stages, int64_t micro_batches, int64_t chunks = 1, double forward = 1,
               double backward_input = 1, double backward_weight = 1) {
  return simulate(make_schedules(kind, stages, micro_batches, chunks), forward, backward_input, backward_weight);
}

// Narayanan et al. 2021, section 2.2: (p - 1) / m of the ideal time, whatever forward and backward take.
TEST(Simulate, BubbleOf1F1BIsItsClosedForm) {
  for (const auto& [p, m] : std::vector<std::pair<int64_t, int64_t>>{{1, 5}, {2, 2}, {4, 8}, {7, 33}, {12, 64}}) {
    const Simulation result = run(ScheduleKind::k1F1B, p, m, 1, 3, 4, 2);
    EXPECT_NEAR(result.bubble_share, static_cast<double>(p - 1) / static_cast<double>(m + p - 1), 1e-12)
        << p << " " << m;
    EXPECT_DOUBLE_EQ(result.end, static_cast<double>(m + p - 1) * 9);
  }
}

// The same, section 2.2: v chunks cut the bubble by v.
TEST(Simulate, BubbleOfInterleavedIsItsClosedForm) {
  for (const int64_t v : {2, 3, 5})
    for (const auto& [p, m] :
         std::vector<std::pair<int64_t, int64_t>>{{2, 2}, {2, 8}, {4, 8}, {4, 4}, {7, 21}, {12, 60}}) {
      const Simulation result = run(ScheduleKind::kInterleaved, p, m, v, 1, 1, 1);
      EXPECT_NEAR(result.bubble_share, static_cast<double>(p - 1) / static_cast<double>(v * m + p - 1), 1e-12)
          << p << " stages, " << m << " micro-batches, " << v << " chunks";
    }
}

// Qi et al. 2023, table 1: the bubble is (p - 1) (F + B - W), against (p - 1) (F + B + W) of 1F1B.
TEST(Simulate, BubbleOfZeroBubbleIsAThirdOf1F1B) {
  for (const auto& [p, m] : std::vector<std::pair<int64_t, int64_t>>{{2, 4}, {4, 8}, {7, 33}, {12, 64}}) {
    const Simulation split = run(ScheduleKind::kZeroBubble, p, m), joined = run(ScheduleKind::k1F1B, p, m);
    EXPECT_DOUBLE_EQ(split.end, static_cast<double>(3 * m + (p - 1)));
    EXPECT_DOUBLE_EQ(joined.end, static_cast<double>(3 * m + 3 * (p - 1)));
  }
}

TEST(Simulate, ZeroBubbleKeepsNoMoreThan1F1B) {
  for (int64_t p = 1; p <= 12; ++p)
    for (const int64_t m : {1, 5, 12, 33}) {
      const Simulation split = run(ScheduleKind::kZeroBubble, p, m), joined = run(ScheduleKind::k1F1B, p, m);
      EXPECT_EQ(*std::max_element(split.most_alive.begin(), split.most_alive.end()), joined.most_alive[0])
          << p << " stages, " << m << " micro-batches";
    }
}

TEST(Simulate, LiveActivationsAreThoseOfThePapers) {
  EXPECT_EQ(run(ScheduleKind::k1F1B, 4, 8).most_alive, (std::vector<int64_t>{4, 3, 2, 1}));
  EXPECT_EQ(run(ScheduleKind::k1F1B, 4, 2).most_alive, (std::vector<int64_t>{2, 2, 2, 1}));
  // Chunks of a stage: warm-up 2 (p - 1 - stage) + (v - 1) p, and the one under way.
  EXPECT_EQ(run(ScheduleKind::kInterleaved, 4, 8, 2).most_alive, (std::vector<int64_t>{11, 9, 7, 5}));
}

TEST(Simulate, UnevenStagesAndMessagesTakeTheirTime) {
  // Two stages, one micro-batch: 2 + 1 + (3) + 1 + 4, the message each way 1.
  const Simulation result = simulate(make_schedules(ScheduleKind::k1F1B, 2, 1),
                                     {{.forward = 2, .backward_input = 3, .backward_weight = 1, .message = 1},
                                      {.forward = 1, .backward_input = 1, .backward_weight = 1, .message = 1}});
  EXPECT_DOUBLE_EQ(result.spans[1][0].start, 3);
  EXPECT_DOUBLE_EQ(result.spans[0][1].start, 7);
  EXPECT_DOUBLE_EQ(result.end, 11);
  EXPECT_NEAR(result.bubble_share, 1 - (2 + 4 + 1 + 2) / 22.0, 1e-12);
}

TEST(Simulate, PartsOfOneStageMayTakeDifferentTimes) {
  // Two stages of two chunks, two micro-batches; the last part (the output) takes 5 instead of 1.
  std::vector<ActionTimes> times(4, {.forward = 1, .backward_input = 1, .backward_weight = 1, .message = 0});
  times[3] = {.forward = 5, .backward_input = 5, .backward_weight = 5, .message = 0};
  const Simulation result = simulate(make_schedules(ScheduleKind::kInterleaved, 2, 2, 2), times);
  // Stage 1: F0.0 from 1, F1.0 from 2, F0.1 from 3 to 8, B0.1 to 18, F1.1 to 23, B1.1 to 33, B0.0, B1.0 after stage 0.
  EXPECT_DOUBLE_EQ(result.spans[1][2].start, 3);
  EXPECT_DOUBLE_EQ(result.spans[1][5].end, 33);
  EXPECT_DOUBLE_EQ(result.end, 33 + 2 + 2 + 2);
}

}  // namespace
}  // namespace espalier::plan
