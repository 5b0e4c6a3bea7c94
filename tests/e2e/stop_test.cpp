// Every way to stop a run leaves a checkpoint, and the run continues from it.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "launch/environment.h"
#include "store/run_folder.h"
#include "tests/e2e/run_fixture.h"
#include "train/run.h"

namespace espalier::test {
namespace stop_test {

class Stop : public ::testing::Test {
 protected:
  void SetUp() override { write_token_files(folder_ / "data", 200, 5); }
  Words run(const Words& more) const {
    return tiny_run(folder_ / "data") +
           Words{"--save", folder_ / "run", "--load", folder_ / "run", "--save-interval", "1000"} + more;
  }
  std::vector<int64_t> saved_steps() const { return test::saved_steps(folder_ / "run"); }
  TemporaryFolder folder_;
};

TEST_F(Stop, ExitIntervalSavesBehindThatStep) {
  train(run({"--exit-interval", "4"}));
  EXPECT_EQ(saved_steps(), (std::vector<int64_t>{4}));
  train(run({"--exit-interval", "4"}));
  EXPECT_EQ(saved_steps(), (std::vector<int64_t>{4, 8}));
}

TEST_F(Stop, KillSwitchAtTheStartWritesNothing) {
  std::ofstream(folder_ / "stop") << "";
  train(run({"--kill-switch-path", folder_ / "stop"}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(Stop, KillSwitchThatComesWhileTheRunIsBuiltEndsItBeforeItsFirstStep) {
  ParsedRun parsed(run({"--kill-switch-path", folder_ / "stop"}));
  train::run(parsed.config, parsed.table, "", dist::single_process(), [&](train::Job&) {
    std::ofstream(folder_ / "stop") << "";
    return std::unique_ptr<train::Observer>();
  });
  EXPECT_EQ(step_records(folder_ / "run").size(), 0u);
  EXPECT_EQ(saved_steps(), std::vector<int64_t>{});
}

TEST_F(Stop, KillSwitchDuringTheRunSavesAndEnds) {
  std::thread thread([&] {
    train(run({"--kill-switch-path", folder_ / "stop", "--train-samples", "80000", "--lr-decay-samples", "80000"}));
  });
  while (step_records(folder_ / "run").size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::ofstream(folder_ / "stop") << "";
  thread.join();
  ASSERT_EQ(saved_steps().size(), 1u);
  EXPECT_EQ(saved_steps()[0], static_cast<int64_t>(step_records(folder_ / "run").size()));
}

TEST_F(Stop, TheTimeOfARunThatIsLaunchedCountsFromItsLaunch) {
  const auto launched = [](int minutes) {
    const auto time = std::chrono::steady_clock::now() - std::chrono::minutes(minutes);
    setenv(launch::kLaunchedAtVariable, launch::launched_at_text(time).c_str(), 1);
    setenv("ESPALIER_LAUNCH", "1", 1);
  };
  launched(2);
  train(run({"--exit-duration-in-mins", "3", "--exit-interval", "4"}));
  EXPECT_EQ(saved_steps(), (std::vector<int64_t>{4}));
  launched(4);
  train(run({"--exit-duration-in-mins", "3", "--exit-interval", "4"}));
  unsetenv(launch::kLaunchedAtVariable);
  unsetenv("ESPALIER_LAUNCH");
  EXPECT_EQ(saved_steps(), (std::vector<int64_t>{4}));
  train(run({"--exit-duration-in-mins", "3", "--exit-interval", "4"}));
  EXPECT_EQ(saved_steps(), (std::vector<int64_t>{4, 8}));
}

TEST_F(Stop, SignalsSaveAndEnd) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const size_t before = step_records(folder_ / "run").size();
    std::thread thread([&] { train(run({"--train-samples", "80000", "--lr-decay-samples", "80000"})); });
    while (step_records(folder_ / "run").size() < before + 2)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    raise(signal);
    thread.join();
    EXPECT_EQ(saved_steps().back(), static_cast<int64_t>(step_records(folder_ / "run").size())) << signal;
  }
}

}  // namespace stop_test
}  // namespace espalier::test
