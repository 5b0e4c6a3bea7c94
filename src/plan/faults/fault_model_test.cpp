#include "plan/faults/fault_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace espalier::plan {
namespace {

constexpr double kDay = 86400;

// One failure a day of a hundred nodes.
FaultModel daily() {
  return {.num_nodes = 100, .faults_per_node_day = 0.01, .detect = 60, .restart = 840, .save = 40, .step = 7};
}

TEST(FaultModel, PublishedRatesGiveThePublishedTimesBetweenFailures) {
  const auto hours = [](const char* name, double devices) {
    for (const FaultRate& rate : fault_rates())
      if (std::string(rate.name) == name)
        return FaultModel{.num_nodes = devices / 8, .faults_per_node_day = rate.per_node_day}.mean_time_between() /
               3600;
    return 0.0;
  };
  EXPECT_NEAR(hours("llama3", 16384), 3.1, 0.05) << "one every three hours";
  EXPECT_NEAR(hours("rsc-1", 16384), 1.8, 0.05) << "projected by the paper for 16,384 devices";
  EXPECT_NEAR(hours("rsc-1", 131072), 0.23, 0.005) << "and for 131,072";
  EXPECT_EQ(FaultModel().mean_time_between(), std::numeric_limits<double>::infinity());
}

// First-order terms by hand: half an interval, detection and restart for each failure, and the saves.
TEST(FaultModel, FewFailuresCostWhatIsCountedByHand) {
  const FaultModel model = daily();
  const double interval = 3600;
  const double lost = (900 + interval / 2 + 20) / kDay + 40 / interval;
  EXPECT_NEAR(1 - expected_ettr(model, interval), lost, 0.05 * lost);
  FaultModel none = model;
  none.faults_per_node_day = 0;
  EXPECT_DOUBLE_EQ(expected_ettr(none, 360), 360 / 400.0);
  EXPECT_EQ(expected_ettr(none, best_interval(none)), 1);
}

TEST(FaultModel, BestIntervalIsTheMaximumAndDalyIsNearIt) {
  for (const double rate : {1e-4, 1e-2, 1.0, 20.0})
    for (const double save : {0.5, 40.0, 1000.0}) {
      FaultModel model = daily();
      model.faults_per_node_day = rate;
      model.save = save;
      model.step = 1e-3;
      const double best = best_interval(model), most = expected_ettr(model, best);
      for (const double factor : {0.1, 0.3, 0.7, 0.9, 0.99, 1.01, 1.1, 1.5, 3.0, 10.0})
        EXPECT_LE(expected_ettr(model, best * factor), most * (1 + 1e-12)) << rate << " " << save << " " << factor;
      EXPECT_NEAR(young_interval(model), std::sqrt(2 * save * 86400 / (100 * rate)), 1e-9);
      if (save < model.mean_time_between() / 2) {
        EXPECT_NEAR(daly_interval(model) / best, 1, 0.01) << rate << " " << save;
      }
    }
  FaultModel slow = daily();
  slow.step = 1e6;
  EXPECT_EQ(best_interval(slow), 1e6) << "no part of a step is saved";
}

// Two ways to the same figure: 3,000 seeded runs and the closed form.
TEST(FaultModel, SimulationAndClosedFormAgree) {
  for (const int64_t save_steps : {1, 33, 700}) {
    const FaultModel model = daily();
    const FaultStudy study = study_faults(model, save_steps, 90 * kDay, 3000);
    const double expected = expected_ettr(model, static_cast<double>(save_steps) * model.step);
    // The end of a run keeps what was not saved yet: that of half an interval of 90 days.
    const double end = static_cast<double>(save_steps) * model.step / (90 * kDay);
    EXPECT_NEAR(study.mean, expected, 4 * study.mean_error + end) << save_steps;
    EXPECT_LT(study.mean_error, 2e-4);
    EXPECT_LE(study.low, study.mean);
    EXPECT_GE(study.high, study.mean);
    EXPECT_NEAR(static_cast<double>(study.average.num_faults), 90, 2) << "restarts fail as well";
  }
}

TEST(FaultModel, EverySecondOfASimulationIsAccountedFor) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    FaultModel model = daily();
    model.faults_per_node_day = seed % 2 == 0 ? 0.3 : 0;
    const double horizon = 7 * kDay;
    const FaultRun run = simulate_faults(model, 1 + static_cast<int64_t>(seed) % 50, horizon, seed);
    EXPECT_NEAR(run.wall, horizon, 1e-6);
    EXPECT_LE(run.kept + run.redone + run.down + run.saving, horizon + 1e-6);
    // What is left is the step that was under way at the end.
    EXPECT_GT(run.kept + run.redone + run.down + run.saving, horizon - model.step - 1e-6);
    EXPECT_EQ(run.num_faults > 0, seed % 2 == 0);
    const FaultRun again = simulate_faults(model, 1 + static_cast<int64_t>(seed) % 50, horizon, seed);
    EXPECT_EQ(run.kept, again.kept);
  }
}

TEST(FaultModel, PlansNameTheBestIntervalAndTheAskedOne) {
  FaultModel model = daily();
  const FaultRate rate = find_fault_rate("rsc-2");
  const FaultPlan plan = plan_faults(model, rate, 10 * kDay, 90 * kDay, 1000);
  EXPECT_NEAR(static_cast<double>(plan.best_steps) * model.step, best_interval(model), model.step);
  EXPECT_GT(plan.best_ettr, plan.asked_ettr);
  EXPECT_NEAR(plan.study.mean, plan.asked_ettr, 0.002);
  const std::string text = fault_text(plan);
  for (const char* part : {"1 a day on 100 nodes, by rsc-2", "Kokolis et al. 2024", "as asked, every 1,000 steps",
                           "1,000 seeded runs of 90.0 days", "for what takes 10.0 days undisturbed"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  model.faults_per_node_day = 0;
  EXPECT_EQ(plan_faults(model, rate, 10 * kDay, 90 * kDay, 0).study.average.num_faults, 0);
}

// It saves once, at its end: interval, time and simulation are of that.
TEST(FaultModel, ARunShorterThanAnIntervalSavesAtItsEnd) {
  FaultModel model = daily();
  model.step = 0.5, model.save = 40, model.faults_per_node_day /= 1000;
  const double work = 20 * model.step, wall = work + model.save;
  for (const int64_t asked : {0, 7, 100}) {
    const FaultPlan plan = plan_faults(model, find_fault_rate("rsc-2"), work, work, asked);
    EXPECT_EQ(plan.best_steps, 20);
    EXPECT_TRUE(plan.saves_once);
    EXPECT_EQ(plan.asked_once, asked == 100);
    const double share = asked == 7 ? 3.5 / 43.5 : work / wall;
    EXPECT_NEAR(plan.ettr(), share, 1e-3 * share) << asked;
    EXPECT_NEAR(plan.study.mean, share, 0.01) << asked;
    const std::string text = fault_text(plan);
    EXPECT_NE(text.find("best only at the end: the run, 20 steps (10 s), is shorter than an interval"),
              std::string::npos)
        << text;
    EXPECT_EQ(text.find("only at the end:", text.find("as asked")) != std::string::npos, asked == 100) << text;
  }
}

TEST(FaultModel, RatesThatAreNoneAndRunsThatNeverGetOnAreRefused) {
  EXPECT_EQ(find_fault_rate("0.25").per_node_day, 0.25);
  for (const char* word : {"", "llama4", "-1", "0.1x", "nan", "1e9"})
    EXPECT_THROW(find_fault_rate(word), UserError) << word;
  FaultModel model = daily();
  model.faults_per_node_day = 100;
  try {
    plan_faults(model, find_fault_rate("100"), kDay, kDay, 0);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("such a run never makes progress"), std::string::npos) << error.what();
  }
}

// 9,600 devices for 90 days at the rate of Llama 3: 409 failures. The aim of 98 percent is met where a failure costs
// less than 6 minutes in all, and not with a restart of a quarter of an hour.
TEST(FaultModel, NinetyDaysOn9600Devices) {
  FaultModel model{.num_nodes = 1200, .faults_per_node_day = fault_rates()[0].per_node_day, .step = 20};
  EXPECT_NEAR(model.faults_per_day() * 90, 409, 1);
  // Snapshots of every step outside the rank, with 10 s until it trains again.
  model.detect = 5;
  model.restart = 10;
  model.save = 0.1;
  const FaultStudy quick = study_faults(model, 1, 90 * kDay, 500);
  EXPECT_GT(quick.low, 0.99);
  EXPECT_NEAR(quick.mean, expected_ettr(model, 20), 4 * quick.mean_error + 1e-5);
  // Saves to disk and a restart of 15 minutes.
  model.restart = 900;
  model.save = 5;
  EXPECT_LT(expected_ettr(model, best_interval(model)), 0.95);
  EXPECT_GT(expected_ettr(model, best_interval(model)), 0.90);
}

}  // namespace
}  // namespace espalier::plan
