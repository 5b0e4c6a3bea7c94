#include "plan/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/npy.h"
#include "tests/support/oracle.h"

namespace espalier::plan {
namespace lr_schedule_test {

using Json = nlohmann::json;

Json oracle() { return Json::parse(test::read_bytes(test::find_data("megatron-oracle/schedules/learning_rate.json"))); }

ScheduleConfig config_of(const Json& flags) {
  ScheduleConfig config;
  config.lr = flags["max_lr"], config.min_lr = flags["min_lr"];
  config.warmup_samples = flags["warmup"], config.decay_samples = flags["decay"];
  config.lr_decay_style = flags["style"] == "cosine" ? DecayStyle::kCosine : DecayStyle::kLinear;
  return config;
}

double number(const Json& text) { return std::strtod(text.get<std::string>().c_str(), nullptr); }

// "lr" is Python's shortest text of a double and "lr_hex" its bits; both read back to the same double.
TEST(LrScheduleOracle, RatesAtEverySampleCountEqualMegatrons) {
  int compared = 0;
  const Json entries = oracle();
  for (const auto& [name, entry] : entries.items()) {
    if (name.starts_with("loop")) continue;
    LrSchedule schedule(config_of(entry["flags"]));
    for (const Json& row : entry["rows"]) {
      schedule.step(row[0].get<int64_t>() - schedule.state().num_samples, 0);
      EXPECT_EQ(schedule.lr(), number(row[2])) << name << " after " << row[0] << " samples";
      EXPECT_EQ(schedule.lr(), number(row[1])) << name << " after " << row[0] << " samples";
      ++compared;
    }
  }
  EXPECT_EQ(compared, 200);
}

// Rows: iteration, consumed samples after it, global batch size, rate of its step, rate after it.
TEST(LrScheduleOracle, TrainingLoopsWithAndWithoutARampEqualMegatrons) {
  int compared = 0;
  const Json entries = oracle();
  for (const auto& [name, entry] : entries.items()) {
    if (!name.starts_with("loop")) continue;
    LrSchedule schedule(config_of(entry["flags"]));
    for (const Json& row : entry["rows"]) {
      EXPECT_EQ(schedule.lr(), number(row[3])) << name << " iteration " << row[0];
      schedule.step(row[2], 0);
      EXPECT_EQ(schedule.state().num_samples, row[1]) << name << " iteration " << row[0];
      EXPECT_EQ(schedule.lr(), number(row[4])) << name << " iteration " << row[0];
      ++compared;
    }
  }
  EXPECT_EQ(compared, 40);
}

ScheduleConfig linear() {
  ScheduleConfig config;
  config.lr = 1, config.min_lr = 0.25;
  config.warmup_samples = 8, config.decay_samples = 40;
  config.lr_decay_style = DecayStyle::kLinear;
  return config;
}

TEST(LrSchedule, ConstantStaysAtTheLargestRateAfterWarmup) {
  ScheduleConfig config = linear();
  config.lr_decay_style = DecayStyle::kConstant;
  LrSchedule schedule(config);
  EXPECT_EQ(schedule.lr(), 0);
  schedule.step(4, 0);
  EXPECT_EQ(schedule.lr(), 0.5);
  schedule.step(1000, 0);
  EXPECT_EQ(schedule.lr(), 1);
}

TEST(LrSchedule, WarmupOfAFractionIsNotRounded) {
  ScheduleConfig config = linear();
  config.warmup_samples = 2.5;
  LrSchedule schedule(config);
  schedule.step(1, 0);
  EXPECT_EQ(schedule.lr(), 1.0 / 2.5);
  schedule.step(2, 0);
  EXPECT_EQ(schedule.lr(), 0.25 + (1.0 - 0.5 / 37.5) * 0.75);
}

// 10 tokens a sample: the warm-up ends at 80 tokens, the decay at 400.
TEST(LrSchedule, TokensDecideTheDecayAfterAWarmupThatEndsWithAStep) {
  ScheduleConfig config = linear();
  config.lr_decay_tokens = 400;
  LrSchedule schedule(config);
  schedule.step(8, 80);
  EXPECT_EQ(schedule.lr(), 1);
  EXPECT_EQ(schedule.state().warmup_tokens, 80);
  schedule.step(8, 160);
  EXPECT_EQ(schedule.lr(), 0.25 + (1.0 - 80.0 / 320.0) * 0.75);
  schedule.step(24, 400);
  EXPECT_EQ(schedule.lr(), 0.25);
}

TEST(LrSchedule, WarmupThatEndsInsideAStepCountsAllTokens) {
  ScheduleConfig config = linear();
  config.lr_decay_tokens = 400;
  LrSchedule schedule(config);
  schedule.step(10, 100);
  EXPECT_EQ(schedule.state().warmup_tokens, 0);
  EXPECT_EQ(schedule.lr(), 0.25 + (1.0 - 100.0 / 400.0) * 0.75);
}

TEST(LrSchedule, ResumedEqualsStraight) {
  ScheduleConfig config = linear();
  config.lr_decay_tokens = 300;
  for (int64_t stop = 0; stop < 12; ++stop) {
    LrSchedule straight(config), stopped(config);
    for (int64_t step = 0; step < stop; ++step) stopped.step(4, 40 * (step + 1));
    LrSchedule resumed(config);
    resumed.restore(stopped.state());
    for (int64_t step = 0; step < 12; ++step) {
      straight.step(4, 40 * (step + 1));
      if (step >= stop) resumed.step(4, 40 * (step + 1));
    }
    EXPECT_EQ(resumed.state(), straight.state()) << "stopped after " << stop;
    EXPECT_EQ(resumed.lr(), straight.lr()) << "stopped after " << stop;
  }
}

// Argonne's optimizer_param_scheduler.py, written out: a warm-up that counts tokens, and a decay by tokens after it.
TEST(LrSchedule, WarmupCanCountTokens) {
  ScheduleConfig config;
  config.lr = 3e-4, config.min_lr = 1e-5, config.lr_decay_style = DecayStyle::kCosine;
  config.lr_warmup_tokens = 700, config.lr_decay_tokens = 5001, config.decay_samples = 1000;
  LrSchedule schedule(config);
  EXPECT_EQ(schedule.lr(), 0);
  for (int64_t step = 0; step < 40; ++step) {
    const int64_t tokens = 198 * step;  // those of a step count from the next one on
    schedule.step(6, tokens);
    const double share = static_cast<double>(tokens - 700) / (5001 - 700);
    const double expected = tokens <= 700   ? 3e-4 * static_cast<double>(tokens) / 700
                            : tokens > 5001 ? 1e-5
                                            : 1e-5 + 0.5 * (std::cos(M_PI * share) + 1.0) * (3e-4 - 1e-5);
    EXPECT_DOUBLE_EQ(schedule.lr(), expected) << tokens << " tokens";
    EXPECT_EQ(schedule.state().warmup_tokens, 700);
  }
}

// --override-lr-scheduler: the position of the checkpoint, the options of the command line.
TEST(LrSchedule, RestoredPositionUnderOtherOptions) {
  LrSchedule saved(linear());
  saved.step(24, 0);
  ScheduleConfig other = linear();
  other.lr = 2;
  other.decay_samples = 72;
  LrSchedule schedule(other);
  schedule.restore(saved.state());
  EXPECT_EQ(schedule.lr(), 0.25 + (1.0 - 16.0 / 64.0) * 1.75);
}

}  // namespace lr_schedule_test
}  // namespace espalier::plan
