#include "optim/loss_scale.h"

#include <gtest/gtest.h>

#include <vector>

namespace espalier::optim {
namespace {

LossScaleConfig small_config() { return {.initial = 16, .minimum = 2, .window = 3, .hysteresis = 2}; }

// The expected scales follow from Megatron's rules by hand (hysteresis 2, window 3, minimum 2).
TEST(LossScale, HalvesAfterHysteresisAndDoublesAfterWindow) {
  LossScale scaler(small_config());
  const std::vector<std::pair<bool, double>> steps = {
      {true, 16},                          // hysteresis 2 -> 1
      {true, 8},                           // 1 -> 0: back off
      {true, 4},                           // not refilled: back off at once
      {false, 4}, {false, 4}, {false, 8},  // three clean steps: double, hysteresis refilled
      {true, 8},                           // 2 -> 1
      {false, 8}, {true, 4},               // growth restarted, hysteresis used up
      {true, 2},  {true, 2},               // never below the minimum
  };
  for (size_t step = 0; step < steps.size(); ++step) {
    scaler.update(steps[step].first);
    EXPECT_EQ(scaler.scale(), steps[step].second) << "after step " << step;
  }
}

TEST(LossScale, ConstantScaleNeverMoves) {
  LossScaleConfig config = small_config();
  config.dynamic = false;
  LossScale scaler(config);
  for (const bool overflow : {true, true, true, false, false, false, false}) scaler.update(overflow);
  EXPECT_EQ(scaler.scale(), 16);
}

TEST(LossScale, RestoredStateContinuesAsIfNeverStopped) {
  LossScale straight(small_config()), first(small_config());
  const bool overflows[] = {true, false, false, true, false, false, false};
  for (size_t step = 0; step < 3; ++step) straight.update(overflows[step]), first.update(overflows[step]);
  LossScale second(small_config());
  second.restore(first.state());
  for (size_t step = 3; step < std::size(overflows); ++step)
    straight.update(overflows[step]), second.update(overflows[step]);
  EXPECT_EQ(second.state(), straight.state());
}

}  // namespace
}  // namespace espalier::optim
