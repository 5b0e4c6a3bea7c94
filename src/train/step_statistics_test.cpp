#include "train/step_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace espalier::train {
namespace step_statistics_test {

// Losses 1, 2, 3, 4: mean 2.5, deviation sqrt(1.25). Norms: the same times 10.
StepStatistics filled(double sigma) {
  StepStatistics statistics(sigma, 4);
  for (const double loss : {1.0, 2.0, 3.0, 4.0}) EXPECT_EQ(statistics.judge({loss, 10 * loss}), "");
  return statistics;
}

TEST(StepStatistics, NothingIsJudgedBeforeTheWindowIsFull) {
  StepStatistics statistics(1, 3);
  for (const double loss : {1.0, 1e9, 1.0}) EXPECT_EQ(statistics.judge({loss, loss}), "");
  EXPECT_EQ(StepStatistics(0, 2).judge({1e30, 1e30}), "");
}

TEST(StepStatistics, WhatLiesBeyondSigmaIsSaidWithItsNumbers) {
  const double edge = 2.5 + 2 * std::sqrt(1.25);
  EXPECT_EQ(filled(2).judge({edge - 1e-9, 1}), "");
  EXPECT_EQ(filled(2).judge({edge + 1e-9, 1}),
            "loss 4.73607 is above 2.5 + 2 * 1.12, the mean and deviation of the last 4 updates");
  EXPECT_EQ(filled(2).judge({1, 10 * edge + 1e-9}),
            "grad norm 47.3607 is above 25 + 2 * 11.2, the mean and deviation of the last 4 updates");
  EXPECT_EQ(filled(2).judge({-1e9, 0}), "");  // downwards nothing is wrong
}

TEST(StepStatistics, ASkippedStepDoesNotEnterTheWindowAndAnotherDoes) {
  StepStatistics statistics = filled(2);
  EXPECT_NE(statistics.judge({100, 1}), "");
  EXPECT_EQ(statistics.judge({4.7, 1}), "");
  // The oldest is gone: of 2, 3, 4 and 4.7 the mean is 3.425, the deviation 1.020723.
  EXPECT_EQ(statistics.judge({3.425 + 2 * 1.0206, 1}), "");
  StepStatistics same = filled(2);
  same.judge({4.7, 1});
  EXPECT_NE(same.judge({3.425 + 2 * 1.0208, 1}), "");
}

TEST(StepStatistics, AWindowOfSkippedStepsBeginsItAnew) {
  StepStatistics statistics = filled(2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(statistics.judge({100, 1}).find("afresh"), std::string::npos);
  EXPECT_NE(statistics.judge({100, 1}).find("start afresh"), std::string::npos);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(statistics.judge({100, 1}), "") << i;
}

TEST(StepStatistics, TheStateHasEveryBit) {
  StepStatistics one(2, 3);
  for (const double loss : {1.0 / 3, 0x1.fffffffffffffp-3, 1e-300}) one.judge({loss, loss * 7});
  one.judge({5, 5});
  StepStatistics other(2, 3);
  other.restore(one.state());
  EXPECT_EQ(other.state(), one.state());
  EXPECT_EQ(one.state().substr(0, 2), "1 ");
  for (const double loss : {0.4, 0.5, 0.9, 0.3}) EXPECT_EQ(one.judge({loss, loss}), other.judge({loss, loss}));
  EXPECT_EQ(StepStatistics(2, 3).state(), "");
  StepStatistics off(0, 3);
  off.restore(one.state());
  EXPECT_EQ(off.state(), "");
}

TEST(StepStatistics, ASmallerWindowKeepsTheLastSteps) {
  StepStatistics smaller(2, 2);
  smaller.restore(filled(2).state());
  EXPECT_EQ(smaller.state(), "0 0x1.8p+1 0x1.ep+4 0x1p+2 0x1.4p+5");  // 3 30, 4 40
}

TEST(StepStatistics, ATornStateIsRefused) {
  StepStatistics statistics(2, 3);
  EXPECT_THROW(statistics.restore("0 0x1p+1"), UserError);
  EXPECT_THROW(statistics.restore("0 0x1p+1 what"), UserError);
}

}  // namespace step_statistics_test
}  // namespace espalier::train
