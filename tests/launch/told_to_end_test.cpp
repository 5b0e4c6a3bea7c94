// A run that is told to end while a rank hangs: by --kill-switch-path, --exit-duration-in-mins, SIGUSR1 or SIGTERM. The
// rank is named and ended within a bound that the launcher says, nothing is started again, and what was saved stays.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "base/format.h"
#include "tests/launch/launch_fixture.h"
#include "tests/launch/launcher_process.h"
#include "tests/support/planted_hang.h"

namespace espalier::test {
namespace told_to_end_test {

using Clock = std::chrono::steady_clock;

class ToldToEnd : public testing::Test {
 protected:
  void SetUp() override {
    write_token_files(folder_ / "data", 300, 5);
    setenv("LD_PRELOAD", ESPALIER_PLANTED_FAULTS, 1);
  }
  void TearDown() override { unsetenv("LD_PRELOAD"); }

  std::unique_ptr<LauncherProcess> launch(const std::string& name, const Words& more) const {
    return std::make_unique<LauncherProcess>(
        folder_ / (name + ".log"), Words{"--nproc-per-node", "2", "--max-restarts", "5", "train", "gpt"} +
                                       tiny_run(folder_ / "data") +
                                       Words{"--num-threads", "1", "--train-samples", "8000000", "--lr-decay-samples",
                                             "8000000", "--eval-interval", "100000", "--save-interval", "2", "--save",
                                             folder_ / name, "--load", folder_ / name} +
                                       more);
  }
  // A rank of it, hanging there.
  static std::optional<RankWhereabouts> hang(LauncherProcess& launcher, int64_t number, RunPhase phase, Hang kind) {
    std::optional<RankWhereabouts> rank;
    wait_until(60, [&] {
      const auto ranks = launcher.ranks();
      if (ranks.contains(number)) rank = RankWhereabouts::of(ranks.at(number));
      return rank.has_value();
    });
    if (!rank || !plant_in(*rank, phase, kind, 60)) return std::nullopt;
    return rank;
  }
  void expect_ended(LauncherProcess& launcher, const std::string& name, const RankWhereabouts& rank, int exit_code,
                    Clock::time_point told) const {
    ASSERT_TRUE(wait_until(150, [&] { return !launcher.runs(); })) << name << launcher.said();
    std::printf("%s: ended %.1f s after it was told\n", name.c_str(),
                std::chrono::duration<double>(Clock::now() - told).count());
    const std::string log = launcher.said();
    EXPECT_EQ(launcher.exit_code(), exit_code) << name << "\n" << log;
    EXPECT_NE(log.find(concat("(process ", rank.pid(), " on ")), std::string::npos) << name << "\n" << log;
    EXPECT_NE(log.find("the run hangs: rank "), std::string::npos) << name << "\n" << log;
    for (const char* again : {"starting all ranks again", "starting again"})
      EXPECT_EQ(log.find(again), std::string::npos) << name << "\n" << log;
    EXPECT_NE(log.find("one that makes no progress for 1 min 00 s is ended"), std::string::npos) << name << "\n" << log;
  }
  TemporaryFolder folder_;
};

// Busy ranks of which nothing is known yet, that would be left alone as long as nobody wants the run to end.
TEST_F(ToldToEnd, ABusyRankIsNamedAndEndedWithinTheBound) {
  if (!long_version()) GTEST_SKIP() << "takes two minutes: --all";
  const std::string kill_switch = folder_ / "end";
  auto by_time = launch("exit duration", {"--exit-duration-in-mins", "1"});
  const auto time_rank = hang(*by_time, 0, RunPhase::kLoad, Hang::kBusy);
  auto by_file = launch("kill switch", {"--kill-switch-path", kill_switch});
  const auto file_rank = hang(*by_file, 1, RunPhase::kLoad, Hang::kBusy);
  auto by_usr1 = launch("SIGUSR1", {});
  const auto usr1_rank = hang(*by_usr1, 1, RunPhase::kSave, Hang::kBusy);
  auto by_term = launch("SIGTERM", {});
  const auto term_rank = hang(*by_term, 0, RunPhase::kLoad, Hang::kBusy);
  ASSERT_TRUE(file_rank && time_rank && usr1_rank && term_rank);
  std::this_thread::sleep_for(std::chrono::seconds(8));
  for (const auto* launcher : {&by_file, &by_usr1, &by_term})
    EXPECT_EQ((*launcher)->said().find("the run hangs"), std::string::npos) << (*launcher)->said();
  const auto told = Clock::now();
  std::ofstream(kill_switch) << "end";
  by_usr1->send(SIGUSR1);
  by_term->send(SIGTERM);
  expect_ended(*by_file, "kill switch", *file_rank, 137, told);
  expect_ended(*by_usr1, "SIGUSR1", *usr1_rank, 137, told);
  expect_ended(*by_term, "SIGTERM", *term_rank, 137, told);
  expect_ended(*by_time, "exit duration", *time_rank, 137, told);
  EXPECT_NE(by_file->said().find(concat("the kill switch '", kill_switch, "' exists: waiting for 2 ranks to save")),
            std::string::npos);
  EXPECT_NE(by_time->said().find("1 minutes have passed (--exit-duration-in-mins): waiting for"), std::string::npos);
  EXPECT_NE(by_file->said().find("It was told to end: the kill switch"), std::string::npos);
  const std::string events = read_file(folder_ / "SIGUSR1/events.jsonl");
  EXPECT_NE(events.find("\"event\":\"hang\""), std::string::npos) << events;
  EXPECT_NE(events.find("after the run was told to end (SIGUSR1); the run has ended"), std::string::npos) << events;
}

// It is named after five seconds as always, but the run does not begin again.
TEST_F(ToldToEnd, AStoppedRankIsNamedAndEnded) {
  const std::string kill_switch = folder_ / "end";
  auto one = launch("one stopped", {"--kill-switch-path", kill_switch});
  ASSERT_TRUE(wait_until(60, [&] { return !saved_steps(folder_ / "one stopped").empty(); }));
  const auto told = Clock::now();
  const auto stopped = hang(*one, 1, RunPhase::kTrain, Hang::kStop);
  std::ofstream(kill_switch) << "end";
  ASSERT_TRUE(stopped);
  expect_ended(*one, "one stopped", *stopped, 137, told);
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - told).count(), 40);
  EXPECT_FALSE(saved_steps(folder_ / "one stopped").empty());
}

// Which is somebody's wish as long as nobody wants the run to end.
TEST_F(ToldToEnd, AllRanksThatAreStoppedAreEndedToo) {
  if (!long_version()) GTEST_SKIP() << "takes a minute: --all";
  const std::string kill_switch = folder_ / "end";
  auto all = launch("all stopped", {"--kill-switch-path", kill_switch});
  const auto first = hang(*all, 0, RunPhase::kTrain, Hang::kStop),
             second = hang(*all, 1, RunPhase::kTrain, Hang::kStop);
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(wait_until(60, [&] {
    return all->said().find("ranks on this machine are stopped") != std::string::npos;
  })) << all->said();
  const auto told = Clock::now();
  std::ofstream(kill_switch) << "end";
  expect_ended(*all, "all stopped", *first, 137, told);
}

// Nothing of this touches a run that can end.
TEST_F(ToldToEnd, AHealthyRunSavesAndEndsWell) {
  const std::string kill_switch = folder_ / "end";
  auto by_file = launch("kill switch", {"--kill-switch-path", kill_switch});
  auto by_usr1 = launch("SIGUSR1", {});
  ASSERT_TRUE(
      wait_until(60, [&] { return num_records(folder_ / "kill switch") > 3 && num_records(folder_ / "SIGUSR1") > 3; }));
  std::ofstream(kill_switch) << "end";
  by_usr1->send(SIGUSR1);
  for (auto* launcher : {&by_file, &by_usr1}) {
    ASSERT_TRUE(wait_until(60, [&] { return !(*launcher)->runs(); })) << (*launcher)->said();
    EXPECT_EQ((*launcher)->exit_code(), 0) << (*launcher)->said();
    EXPECT_EQ((*launcher)->said().find("hangs"), std::string::npos) << (*launcher)->said();
  }
  for (const char* name : {"kill switch", "SIGUSR1"})
    EXPECT_EQ(saved_steps(folder_ / name).back(), step_records(folder_ / name).back().at("step").get<int64_t>());
}

}  // namespace told_to_end_test
}  // namespace espalier::test
