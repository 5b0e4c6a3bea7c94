#include "launch/straggler_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace espalier::launch {
namespace straggler_rule_test {

// Times of a run's steps: all ranks share what varies from step to step, and each has noise of its own.
class SimulatedRun {
 public:
  SimulatedRun(size_t num_ranks, double noise, uint64_t seed) : factor(num_ranks, 1), noise_(noise), random_(seed) {}
  std::vector<double> step() {
    std::uniform_real_distribution<double> share;
    std::normal_distribution<double> normal;
    const double common = 0.2 * std::exp(0.3 * normal(random_));
    std::vector<double> seconds;
    for (const double slower : factor) {
      const double hiccup = share(random_) < hiccups ? 1.5 : 1;
      seconds.push_back(common * slower * hiccup * (1 + noise_ * normal(random_)));
    }
    return seconds;
  }
  double hiccups = 0.01;       // share of the steps that are half as long again, of each rank
  std::vector<double> factor;  // 1.05: that rank is slower by 5 %

 private:
  double noise_;
  std::mt19937_64 random_;
};

std::vector<int64_t> all_kin(size_t num_ranks) { return std::vector<int64_t>(num_ranks, 0); }

struct Noisy {
  size_t num_ranks;
  double noise;
};
constexpr Noisy kStated[] = {{2, 0.015}, {3, 0.02}, {4, 0.025}, {8, 0.025}, {16, 0.01}, {33, 0.025}};

TEST(StragglerRule, NamesARankThatIsSlowerBy5PercentWithin30StepsIn99Of100Cases) {
  for (const Noisy& stated : kStated) {
    constexpr int kCases = 1000;
    int num_named = 0;
    for (int number = 0; number < kCases; ++number) {
      SimulatedRun run(stated.num_ranks, stated.noise, static_cast<uint64_t>(number));
      StragglerRule rule(all_kin(stated.num_ranks));
      const int64_t slow = number % static_cast<int64_t>(stated.num_ranks);
      for (int step = 0; step < 50 + number % 50; ++step) rule.add_step(run.step());
      run.factor[static_cast<size_t>(slow)] = 1.05;
      bool is_named = false;
      // The run gathers five steps at a time: 25 are left.
      for (int step = 0; step < 26; ++step)
        for (const auto& verdict : rule.add_step(run.step()))
          is_named = is_named || (verdict.rank == slow && verdict.begins);
      num_named += is_named ? 1 : 0;
    }
    EXPECT_GE(num_named, kCases * 99 / 100) << stated.num_ranks << " ranks, noise " << stated.noise;
  }
}

TEST(StragglerRule, NamesNobodyInAMillionStepsWithoutAStraggler) {
  int64_t num_steps = 0, num_false = 0;
  for (const auto& [num_ranks, noise, share] :
       {std::tuple(2, 0.02, 300'000), std::tuple(8, 0.025, 300'000), std::tuple(8, 0.002, 150'000),
        std::tuple(4, 0.1, 200'000), std::tuple(33, 0.025, 50'000)}) {
    SimulatedRun run(static_cast<size_t>(num_ranks), noise, 11);
    StragglerRule rule(all_kin(static_cast<size_t>(num_ranks)));
    int64_t here = 0;
    for (int step = 0; step < share; ++step)
      for (const auto& verdict : rule.add_step(run.step())) here += verdict.begins ? 1 : 0;
    EXPECT_LE(here, share / 10'000) << num_ranks << " ranks, noise " << noise;
    num_steps += share, num_false += here;
  }
  EXPECT_EQ(num_steps, 1'000'000);
  EXPECT_LE(num_false, num_steps / 10'000);
  RecordProperty("false_names", static_cast<int>(num_false));
}

TEST(StragglerRule, AnIncidentIsSaidOnceAndItsEndOnce) {
  SimulatedRun run(4, 0.02, 3);
  StragglerRule rule(all_kin(4));
  std::vector<StragglerRule::Verdict> verdicts;
  for (int step = 0; step < 3000; ++step) {
    run.factor[2] = step >= 500 && step < 2000 ? 1.1 : 1;
    for (const auto& verdict : rule.add_step(run.step())) {
      verdicts.push_back(verdict);
      EXPECT_LT(step, verdict.begins ? 530 : 2030);
      EXPECT_GE(step, verdict.begins ? 500 : 2000);
    }
  }
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(verdicts[0].rank, 2);
  EXPECT_TRUE(verdicts[0].begins);
  EXPECT_NEAR(verdicts[0].excess, 0.1, 0.06);
  EXPECT_LT(verdicts[0].num_steps, 30);
  EXPECT_EQ(verdicts[1].rank, 2);
  EXPECT_FALSE(verdicts[1].begins);
}

TEST(StragglerRule, ARankThatIsSlowFromTheStartIsNamedToo) {
  SimulatedRun run(4, 0.02, 5);
  StragglerRule rule(all_kin(4));
  run.factor[3] = 1.08;
  int64_t named_at = -1;
  for (int step = 1; step <= 100 && named_at < 0; ++step)
    for (const auto& verdict : rule.add_step(run.step())) named_at = verdict.rank == 3 ? step : named_at;
  EXPECT_GT(named_at, 12);
  EXPECT_LT(named_at, 42);
}

TEST(StragglerRule, FourSlowStepsNameNobody) {
  SimulatedRun run(4, 0.01, 5);
  run.hiccups = 0;
  StragglerRule rule(all_kin(4));
  for (int step = 0; step < 1000; ++step) {
    run.factor[1] = step % 100 >= 50 && step % 100 < 54 ? 3 : 1;
    for (const auto& verdict : rule.add_step(run.step())) ADD_FAILURE() << "rank " << verdict.rank << " at " << step;
  }
}

// Slow for 12 of every 80 steps: 500 times in 40,000 steps. They give 12 fifths of the evidence that names a rank, so
// that two doublings make it too little; each 10,000 steps halve it once.
TEST(StragglerRule, ARankThatIsSlowNowAndThenIsNamedMoreAndMoreRarely) {
  SimulatedRun run(4, 0.02, 9);
  StragglerRule rule(all_kin(4));
  size_t num_named = 0;
  for (int step = 0; step < 40'000; ++step) {
    run.factor[1] = step % 80 >= 68 ? 1.2 : 1;
    for (const auto& verdict : rule.add_step(run.step())) {
      EXPECT_EQ(verdict.rank, 1);
      num_named += verdict.begins ? 1 : 0;
    }
  }
  EXPECT_GE(num_named, 2U);
  EXPECT_LE(num_named, 2U + 40'000 / 10'000);
  run.factor[1] = 1.2;
  bool is_named = false;
  for (int step = 0; step < 100; ++step)
    for (const auto& verdict : rule.add_step(run.step())) is_named = is_named || verdict.begins;
  EXPECT_TRUE(is_named) << "then it stays slow";
}

// Stages of a pipeline take the times that they take.
TEST(StragglerRule, RanksOfOtherWorkAreNotCompared) {
  SimulatedRun run(5, 0.02, 5);
  StragglerRule rule({0, 0, 1, 1, 2});
  run.factor = {1, 1, 1.4, 1.4, 3};
  std::vector<int64_t> named;
  for (int step = 0; step < 400; ++step) {
    if (step == 200) run.factor[3] = 1.5;
    for (const auto& verdict : rule.add_step(run.step())) {
      EXPECT_GT(step, 200);
      if (verdict.begins) named.push_back(verdict.rank);
    }
  }
  EXPECT_EQ(named, std::vector<int64_t>{3});
}

TEST(StragglerRule, TimesThatAreNoneDoNoHarm) {
  StragglerRule rule(all_kin(3));
  for (int step = 0; step < 100; ++step) EXPECT_TRUE(rule.add_step({0, 0, 0}).empty());
  StragglerRule alone(all_kin(1));
  for (int step = 0; step < 100; ++step) EXPECT_TRUE(alone.add_step({1.0 + step}).empty());
}

}  // namespace straggler_rule_test
}  // namespace espalier::launch
