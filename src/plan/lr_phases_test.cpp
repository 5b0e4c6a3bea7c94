#include "plan/lr_phases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "plan/lr_schedule.h"
#include "tests/support/npy.h"
#include "tests/support/oracle.h"

namespace espalier::plan {
namespace lr_phases_test {

// The originals' get_lr(), written out again: Argonne's optimizer_param_scheduler.py, and Megatron-LM's for WSD.
double original(const ScheduleConfig& c, double n) {
  const double max_lr = *c.lr, min_lr = c.min_lr, w = c.warmup_samples, end = static_cast<double>(c.decay_samples);
  if (w > 0 && n <= w) return c.lr_warmup_init + (max_lr - c.lr_warmup_init) * n / w;
  if (c.lr_decay_style == DecayStyle::kConstant) {
    if (!c.lr_constant_plus_cooldown) return max_lr;
    const double passed = n - w, total = end - w;
    if (passed >= total) return min_lr;
    const auto cooldown = static_cast<double>(static_cast<int64_t>(c.lr_constant_plus_cooldown_frac * end));
    if (passed < total - cooldown) return max_lr;
    const double ratio = std::clamp((passed - (total - cooldown)) / cooldown, 0.0, 1.0);
    return min_lr + (max_lr - min_lr) * (1 - std::sqrt(ratio));
  }
  if (n > end) return min_lr;
  if (c.lr_decay_style == DecayStyle::kInverseSquareRoot)
    return std::max(min_lr, max_lr * std::sqrt(std::max(w, 1.0)) / std::sqrt(std::max(n, 1.0)));
  if (c.lr_decay_style == DecayStyle::kInfiniteCosine || c.lr_decay_style == DecayStyle::kInfiniteInvSquareRoot) {
    const double delta = max_lr - c.constant_lr, cool = c.lr_cooldown_fraction * end,
                 hold = c.lr_constant_fraction * end;
    double passed = n - w, lr = 0;
    if (passed <= cool) {
      const double ratio = passed / cool;
      const auto f = [&](double t) { return 1 / std::sqrt(1 + c.timescale * t) - 1; };
      lr = c.lr_decay_style == DecayStyle::kInfiniteCosine
               ? c.constant_lr + delta * (0.5 * (std::cos(M_PI * ratio) + 1))
               : max_lr - delta * (f(ratio) / f(1));
    } else if (passed -= cool; passed <= hold) {
      lr = c.constant_lr;
    } else {
      const double factor = -std::log(min_lr / c.constant_lr) / (end - w - cool - hold);
      lr = c.constant_lr * std::exp(-factor * (passed - hold));
    }
    return std::max(lr, min_lr);
  }
  const double ratio = (n - w) / (end - w);
  double share = 1 - ratio;
  if (c.lr_decay_style == DecayStyle::kCosine) share = 0.5 * (std::cos(M_PI * ratio) + 1);
  if (c.lr_decay_style == DecayStyle::kWsd) {
    const auto length = static_cast<double>(c.wsd_samples);
    const double q = (n - (end - length)) / length;
    if (q <= 0) return max_lr;
    if (c.lr_wsd_decay_style == LrShape::kLinear) share = 1 - q;
    if (c.lr_wsd_decay_style == LrShape::kCosine) share = 0.5 * (std::cos(M_PI * q) + 1);
    if (c.lr_wsd_decay_style == LrShape::kExponential) share = 2 * std::pow(0.5, q) - 1;
    if (c.lr_wsd_decay_style == LrShape::kMinusSqrt) share = 1 - std::sqrt(q);
  }
  return min_lr + share * (max_lr - min_lr);
}

class Draw {
 public:
  explicit Draw(uint32_t seed) : generator_(seed) {}
  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(generator_); }
  double share() { return std::uniform_real_distribution<double>(0, 1)(generator_); }

 private:
  std::mt19937 generator_;
};

ScheduleConfig random_config(Draw& draw, DecayStyle style) {
  ScheduleConfig c;
  c.lr_decay_style = style;
  c.lr = 1e-5 + draw.share() * 1e-2;
  c.min_lr = *c.lr * (0.001 + 0.1 * draw.share());
  c.constant_lr = c.min_lr + (*c.lr - c.min_lr) * (0.1 + 0.9 * draw.share());
  c.decay_samples = draw.between(100, 1'000'000);
  const int64_t warmup = draw.between(0, 3);
  c.warmup_samples = warmup == 0   ? 0
                     : warmup == 1 ? draw.share() * 0.1 * static_cast<double>(c.decay_samples)
                                   : static_cast<double>(draw.between(1, c.decay_samples / 10));
  c.lr_warmup_init = draw.between(0, 1) == 0 ? 0 : *c.lr * draw.share();
  c.wsd_samples = draw.between(1, c.decay_samples / 2);
  c.lr_wsd_decay_style = std::array{LrShape::kLinear, LrShape::kCosine, LrShape::kExponential,
                                    LrShape::kMinusSqrt}[static_cast<size_t>(draw.between(0, 3))];
  c.lr_constant_plus_cooldown = draw.between(0, 2) > 0;
  c.lr_constant_plus_cooldown_frac = 0.01 + 0.8 * draw.share();
  c.lr_cooldown_fraction = 0.05 + 0.6 * draw.share(), c.lr_constant_fraction = 0.1 * draw.share();
  c.timescale = 0.1 + 20 * draw.share();
  return c;
}

TEST(LrPhases, EveryStyleGivesTheRatesOfTheOriginals) {
  Draw draw(20);
  int64_t compared = 0;
  for (int round = 0; round < 20; ++round)
    for (const DecayStyle style :
         {DecayStyle::kConstant, DecayStyle::kLinear, DecayStyle::kCosine, DecayStyle::kInverseSquareRoot,
          DecayStyle::kInfiniteCosine, DecayStyle::kInfiniteInvSquareRoot, DecayStyle::kWsd}) {
      const ScheduleConfig config = random_config(draw, style);
      LrSchedule schedule(config);
      for (int place = 0; place < 1000; ++place, ++compared) {
        const int64_t samples = draw.between(0, config.decay_samples + config.decay_samples / 10);
        schedule.restore({.num_samples = samples, .num_tokens = 0, .warmup_tokens = 0});
        const double expected = original(config, static_cast<double>(samples));
        // Where a rate comes near 0 by cancellation, what counts is its share of the largest.
        ASSERT_NEAR(schedule.lr(), expected, 1e-12 * std::max(expected, 1e-3 * *config.lr))
            << "style " << static_cast<int>(style) << ", " << samples << " of " << config.decay_samples;
      }
    }
  EXPECT_EQ(compared, 140'000);
}

// The originals' get_wd(), written out again; both have the same.
TEST(LrPhases, WeightDecayGrowsAsThatOfTheOriginals) {
  Draw draw(21);
  for (int round = 0; round < 20; ++round)
    for (const WeightDecayStyle style : {WeightDecayStyle::kLinear, WeightDecayStyle::kCosine}) {
      ScheduleConfig c = random_config(draw, DecayStyle::kCosine);
      const double start = 0.2 * draw.share(), end = start + 0.3 * draw.share();
      c.weight_decay_incr_style = style, c.start_weight_decay = start, c.end_weight_decay = end;
      c.weight_decay_samples = draw.between(100, 1'000'000);
      LrSchedule schedule(c);
      for (int place = 0; place < 1000; ++place) {
        const int64_t samples = draw.between(0, c.weight_decay_samples + c.weight_decay_samples / 10);
        schedule.restore({.num_samples = samples, .num_tokens = 0, .warmup_tokens = 0});
        const double ratio = static_cast<double>(samples) / static_cast<double>(c.weight_decay_samples);
        double expected = end;
        if (ratio <= 1)
          expected = start + (style == WeightDecayStyle::kLinear ? ratio : 0.5 * (std::cos(M_PI * (1 - ratio)) + 1)) *
                                 (end - start);
        ASSERT_NEAR(*schedule.weight_decay(), expected, 1e-12 * expected)
            << "style " << static_cast<int>(style) << ", " << samples << " of " << c.weight_decay_samples;
      }
    }
}

// Written by tests/oracle/schedules_oracle.py with the originals' own classes.
TEST(LrPhases, RatesOfTheOriginalsOwnClasses) {
  std::ifstream file("tests/data/schedules/originals.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  const std::map<std::string, DecayStyle> styles = {{"constant", DecayStyle::kConstant},
                                                    {"inverse-square-root", DecayStyle::kInverseSquareRoot},
                                                    {"infinite-cosine", DecayStyle::kInfiniteCosine},
                                                    {"infinite-inv-square-root", DecayStyle::kInfiniteInvSquareRoot},
                                                    {"WSD", DecayStyle::kWsd}};
  const std::map<std::string, LrShape> falls = {{"linear", LrShape::kLinear},
                                                {"cosine", LrShape::kCosine},
                                                {"exponential", LrShape::kExponential},
                                                {"minus_sqrt", LrShape::kMinusSqrt}};
  EXPECT_EQ(cases.size(), 9U);
  for (const auto& [name, entry] : cases.items()) {
    ScheduleConfig c;
    c.lr = entry["max_lr"], c.min_lr = entry["min_lr"], c.lr_warmup_init = entry["init_lr"];
    c.warmup_samples = entry["warmup"], c.decay_samples = entry["decay"];
    c.lr_decay_style = styles.at(entry["style"]);
    c.lr_wsd_decay_style = falls.at(entry["wsd_style"]), c.wsd_samples = entry["wsd"];
    c.lr_constant_plus_cooldown = entry["plus_cooldown"];
    c.lr_constant_plus_cooldown_frac = entry["plus_cooldown_frac"];
    c.constant_lr = entry["constant_lr"], c.timescale = entry["timescale"];
    c.lr_cooldown_fraction = entry["cooldown_fraction"], c.lr_constant_fraction = entry["constant_fraction"];
    c.weight_decay_incr_style = entry["wd_style"] == "cosine" ? WeightDecayStyle::kCosine : WeightDecayStyle::kLinear;
    c.start_weight_decay = entry["start_wd"], c.end_weight_decay = entry["end_wd"];
    c.weight_decay_samples = entry["wd_steps"];
    LrSchedule schedule(c);
    for (const auto& row : entry["rows"]) {
      schedule.restore({.num_samples = row[0], .num_tokens = 0, .warmup_tokens = 0});
      const double rate = row[1], weight_decay = row[2];
      EXPECT_NEAR(schedule.lr(), rate, 1e-12 * rate) << name << " at " << row[0];
      EXPECT_NEAR(*schedule.weight_decay(), weight_decay, 1e-12 * weight_decay) << name << " at " << row[0];
    }
  }
}

std::vector<LrPhase> read(const std::vector<std::string>& words, Problems& problems, bool counts_steps = true) {
  return read_phases(words,
                     {.peak = 1,
                      .floor = 0.1,
                      .counts_steps = counts_steps,
                      .samples_a_step = 10,
                      .tokens_a_sample = 100,
                      .samples = 2000},
                     "--lr-phases", problems);
}

TEST(LrPhases, WordsBecomePhases) {
  Problems problems;
  const auto phases =
      read({"linear:20", "constant:rest", "minus-sqrt:500samples::0.2", "cosine:20_000tokens"}, problems);
  EXPECT_TRUE(problems.empty());
  ASSERT_EQ(phases.size(), 4U);
  const std::vector<double> ends = {200, 1300, 1800, 2000}, from = {0, 1, 1, 0.2}, to = {1, 1, 0.2, 0.1};
  for (size_t at = 0; at < 4; ++at) {
    EXPECT_EQ(phases[at].end, ends[at]) << at;
    EXPECT_EQ(phases[at].from, from[at]) << at;
    EXPECT_EQ(phases[at].to, to[at]) << at;
  }
  EXPECT_EQ(rate_at(phases, 0, 0).rate, 0);
  EXPECT_EQ(rate_at(phases, 0, 50).rate, 0.25);
  EXPECT_EQ(rate_at(phases, 0, 1300).rate, 1);
  EXPECT_DOUBLE_EQ(rate_at(phases, 0, 1425).rate, 0.2 + 0.5 * 0.8);
  EXPECT_DOUBLE_EQ(rate_at(phases, 0, 1900).rate, 0.15);
  EXPECT_EQ(rate_at(phases, 0, 5000).rate, 0.1);
  EXPECT_EQ(rate_at(phases, 0, 5000).phase, 4U);
}

TEST(LrPhases, ALengthWithoutAUnitIsWhatTheRunCounts) {
  Problems problems;
  EXPECT_EQ(read({"linear:20"}, problems, false).at(0).end, 20);
  EXPECT_EQ(read({"linear:20steps"}, problems, false).at(0).end, 200);
}

TEST(LrPhases, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"linear"}, "--lr-phases: 'linear' is not SHAPE:LENGTH[:FROM[:TO]]"},
      {{"linear:1:2:3:4"}, "'linear:1:2:3:4' is not SHAPE"},
      {{"sine:10"}, "'sine:10' has no known shape; use constant, linear, cosine"},
      {{"linear:0"}, "has the length '0'"},
      {{"linear:-5"}, "has the length '-5'"},
      {{"linear:5weeks"}, "has the length '5weeks'"},
      {{"linear:1 constant:rest"}, "has a blank; give each phase as a word of its own"},
      {{"linear:5:x"}, "has 'x' where a learning rate"},
      {{"linear:5:-1"}, "has '-1' where a learning rate"},
      {{"linear:rest", "constant:rest"}, "is a second 'rest'"},
      {{"linear:200", "constant:rest"}, "has nothing left"},
      {{"constant:5:1:0.5"}, "a constant phase has one rate"},
      {{"geometric:5:1:0"}, "needs two rates above 0"},
      {{"inverse-sqrt:5:0.1:1"}, "an inverse root falls"},
  };
  for (const auto& [words, expected] : cases) {
    Problems problems;
    EXPECT_TRUE(read(words, problems).empty()) << words[0];
    ASSERT_FALSE(problems.empty()) << words[0];
    EXPECT_NE(problems.messages()[0].find(expected), std::string::npos) << problems.messages()[0];
  }
}

// A cooldown that branches off a trunk changes nothing before it.
TEST(LrPhases, SchedulesThatAgreeSoFarAreKnown) {
  Problems problems;
  ScheduleConfig trunk, branch;
  trunk.lr = branch.lr = 1;
  trunk.min_lr = branch.min_lr = 0.1;
  trunk.decay_samples = branch.decay_samples = 2000;
  trunk.phases = read({"linear:20", "constant:180"}, problems);
  branch.phases = read({"linear:20", "constant:130", "minus-sqrt:50"}, problems);
  const auto at = [](int64_t samples) { return LrState{.num_samples = samples, .num_tokens = 0, .warmup_tokens = 0}; };
  EXPECT_TRUE(same_until(trunk, branch, at(1500)));
  EXPECT_FALSE(same_until(trunk, branch, at(1510)));
  EXPECT_FALSE(same_until(trunk, branch, at(2000)));
  ScheduleConfig other = trunk;
  other.lr = 2, other.phases = read({"linear:20:0:2", "constant:180"}, problems);
  EXPECT_FALSE(same_until(trunk, other, at(10)));
}

}  // namespace lr_phases_test
}  // namespace espalier::plan
