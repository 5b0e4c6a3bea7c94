#include "plan/batch_ramp.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace espalier::plan {
namespace {

// rampup.json: what Megatron-DeepSpeed's own calculator answered (tests/data/megatron-oracle).
nlohmann::json oracle() { return nlohmann::json::parse(read_file("tests/data/megatron-oracle/schedules/rampup.json")); }

BatchRamp ramp_of(const nlohmann::json& run) {
  const auto& words = run.at("rampup");
  return BatchRamp(words[0], words[1], words[2], run.at("global_batch_size"));
}

TEST(BatchRamp, ChangesAtTheStepsOfMegatron) {
  for (const auto& run : oracle()) {
    const BatchRamp ramp = ramp_of(run);
    int64_t consumed = 0, step = 0;
    for (const auto& row : run.at("changes")) {
      for (; step + 1 < row[0].get<int64_t>(); ++step) consumed += ramp.global_batch_size(consumed);
      EXPECT_EQ(consumed, row[1].get<int64_t>()) << "before step " << row[0];
      EXPECT_EQ(ramp.global_batch_size(consumed), row[2].get<int64_t>()) << "in step " << row[0];
    }
  }
}

TEST(BatchRamp, EachSizeBeginsAtTheSampleOfMegatron) {
  for (const auto& run : oracle()) {
    const BatchRamp ramp = ramp_of(run);
    for (const auto& edge : run.at("edges")) {
      EXPECT_EQ(ramp.global_batch_size(edge[0]), edge[1].get<int64_t>()) << edge;
      EXPECT_LT(ramp.global_batch_size(edge[0].get<int64_t>() - 1), edge[1].get<int64_t>()) << edge;
    }
  }
}

TEST(BatchRamp, NumberOfStepsIsThatOfMegatron) {
  for (const auto& run : oracle())
    EXPECT_EQ(ramp_of(run).num_steps(run.at("train_samples")), run.at("train_iters").get<int64_t>());
}

TEST(BatchRamp, StepsOfEveryLengthEqualThePlainLoop) {
  const BatchRamp ramp(8, 8, 96, 32);
  for (int64_t train_samples = 1; train_samples < 400; ++train_samples) {
    int64_t steps = 0;
    for (int64_t consumed = 0; consumed + ramp.global_batch_size(consumed) <= train_samples; ++steps)
      consumed += ramp.global_batch_size(consumed);
    EXPECT_EQ(ramp.num_steps(train_samples), steps) << train_samples;
  }
}

TEST(BatchRamp, LastSampleOfTheRampFollowsTheDoubles) {
  const BatchRamp ramp(32, 32, 2000000, 512);
  EXPECT_EQ(ramp.global_batch_size(2000000), 480);
  EXPECT_EQ(ramp.global_batch_size(2000001), 512);
}

TEST(BatchRamp, ConstantBatchIgnoresWhatWasConsumed) {
  const BatchRamp constant(12);
  EXPECT_EQ(constant.global_batch_size(0), 12);
  EXPECT_EQ(constant.global_batch_size(int64_t{1} << 40), 12);
  EXPECT_EQ(constant.num_steps(100), 8);
  EXPECT_TRUE(constant.is_constant());
  EXPECT_TRUE(constant.all_sizes_divide_by(4));
  EXPECT_FALSE(BatchRamp(8, 4, 10, 16).all_sizes_divide_by(8));
}

TEST(BatchRamp, LongRampsAreCountedAtOnce) {
  // 10^12 steps of one sample each: too many to walk.
  EXPECT_EQ(BatchRamp(1, 1, 1000000000000, 2).num_steps(1000000000000), 1000000000000);
}

}  // namespace
}  // namespace espalier::plan
