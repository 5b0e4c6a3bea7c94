#include "plan/step_samples.h"

#include <gtest/gtest.h>

namespace espalier::plan {
namespace {

// A step reads 2 samples where fewer than 5 were read before it, 4 where fewer than 10 were, then 6.
TEST(StepSamples, FollowARampByHand) {
  const StepSamples steps(BatchRamp(2, 2, 10, 6), 6, {});
  const std::vector<SampleRange> expected = {{0, 2}, {2, 2}, {4, 2}, {6, 4}, {10, 6}, {16, 6}};
  ASSERT_EQ(steps.num_steps(), 6);
  for (int64_t step = 1; step <= 6; ++step) EXPECT_EQ(steps.of(step), expected[static_cast<size_t>(step - 1)]) << step;
  EXPECT_EQ(steps.end(), 22);
  int64_t sample = 0;
  for (int64_t step = 1; step <= 6; ++step)
    for (int64_t in_step = 0; in_step < expected[static_cast<size_t>(step - 1)].count; ++in_step)
      EXPECT_EQ(steps.step_of(sample++), step);
  EXPECT_EQ(steps.step_of(22), std::nullopt);
  EXPECT_EQ(steps.step_of(-1), std::nullopt);
}

// Steps 1 to 3 read 8 each, as was recorded of the first; step 4 read 3 alone, step 5 is missing (it was skipped),
// and the batch is 5 from there on.
TEST(StepSamples, RecordsCountMoreThanTheRamp) {
  const StepSamples steps(BatchRamp(5), 7, {{1, 8, 8}, {2, 16, 8}, {3, 24, 8}, {4, 27, 3}});
  EXPECT_EQ(steps.of(1), (SampleRange{0, 8}));
  EXPECT_EQ(steps.of(4), (SampleRange{24, 3}));
  EXPECT_EQ(steps.of(5), (SampleRange{27, 5}));
  EXPECT_EQ(steps.of(7), (SampleRange{37, 5}));
  EXPECT_EQ(steps.step_of(26), 4);
  EXPECT_EQ(steps.step_of(27), 5);
}

// A checkpoint records where a run stood, not what its last step read; a record may be beyond the steps of the options.
TEST(StepSamples, AStandAloneCountIsAPlaceToGoOnFrom) {
  const StepSamples steps(BatchRamp(4), 2, {{3, 12, 0}, {5, 21, 5}});
  EXPECT_EQ(steps.num_steps(), 5);
  EXPECT_EQ(steps.of(3), (SampleRange{8, 4}));
  EXPECT_EQ(steps.of(4), (SampleRange{12, 4}));
  EXPECT_EQ(steps.of(5), (SampleRange{16, 5}));
}

}  // namespace
}  // namespace espalier::plan
