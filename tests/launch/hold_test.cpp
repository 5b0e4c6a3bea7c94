// Ranks that outlive the end of another: with their state in the launcher's memory they wait in their processes, and go
// on with the one that is started in its place, to the bits of a run that was left alone.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>

#include "base/format.h"
#include "tests/launch/launch_fixture.h"
#include "tests/launch/launcher_process.h"

namespace espalier::test {
namespace hold_test {

namespace fs = std::filesystem;

using Ranks = std::map<int64_t, pid_t>;

class HeldRanks : public testing::Test {
 protected:
  void SetUp() override { write_token_files(folder_ / "data", 300, 5); }

  void start(int64_t num_ranks, int64_t steps, const std::string& more) {
    num_ranks_ = num_ranks, num_steps_ = steps, more_ = more;
    launcher_ = std::make_unique<LauncherProcess>(
        folder_ / "log",
        split_blanks(concat("--nproc-per-node ", num_ranks, " --max-restarts 1000 --shutdown-timeout 10")) +
            unsaved_run(folder_, "run", steps, more + " --non-persistent-save-interval 1"));
  }
  size_t steps() const { return num_records(folder_ / "run"); }
  bool is_saving() const {
    for (const auto& entry : fs::directory_iterator(folder_ / "run"))
      if (entry.path().extension() == ".partial") return true;
    return false;
  }
  size_t starts() const { return start_steps(folder_ / "run").size(); }
  // From which it trains since its last start.
  int64_t start_step() const { return start_steps(folder_ / "run").back(); }
  // Until it has made so many more steps, and all ranks are there.
  Ranks train_on(size_t more_steps) {
    const size_t target = steps() + more_steps;
    Ranks ranks;
    EXPECT_TRUE(wait_until(120, [&] {
      return (steps() >= target && std::ssize(ranks = launcher_->ranks()) == num_ranks_) || !launcher_->runs();
    })) << launcher_->said();
    EXPECT_TRUE(launcher_->runs()) << launcher_->said();
    return ranks;
  }
  void wait_for_start(size_t number) {
    ASSERT_TRUE(wait_until(120, [&] { return starts() >= number || !launcher_->runs(); })) << launcher_->said();
  }
  void expect_ends_as_if_left_alone() {
    ASSERT_TRUE(wait_until(300, [&] { return !launcher_->runs(); })) << launcher_->said();
    ASSERT_EQ(launcher_->exit_code(), 0) << launcher_->said();
    const Shell result = shell(folder_, concat("espalier launch --nproc-per-node ", num_ranks_,
                                               command_line(unsaved_run(folder_, "straight", num_steps_, more_))));
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(step_records(folder_ / "run"), step_records(folder_ / "straight"));
    const std::string step = format_printf("/step_%08d", static_cast<int>(num_steps_));
    EXPECT_EQ(different_tensors(folder_ / "straight" + step, folder_ / "run" + step), Words{});
  }

  TemporaryFolder folder_;
  int64_t num_ranks_ = 0, num_steps_ = 0;
  std::string more_;
  std::unique_ptr<LauncherProcess> launcher_;
};

// Two launchers, as on two machines, of two ranks each, with ZeRO over all of them; sums of more than two ranks are the
// same on one machine only with --canonical-reduction.
TEST_F(HeldRanks, OfAnotherMachineKeepTheirProcessesToo) {
  num_ranks_ = 4, num_steps_ = 200, more_ = "--bf16 --use-distributed-optimizer --canonical-reduction";
  const int port = 20000 + static_cast<int>(getpid() % 9000);
  const auto launch = [&](const std::string& name) {
    return std::make_unique<LauncherProcess>(
        folder_ / concat(name, ".log"),
        split_blanks(concat("--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:", port,
                            " --rdzv-id a --nnodes 2 --local-addr ", name,
                            " --nproc-per-node 2 --max-restarts 100 --shutdown-timeout 10")) +
            unsaved_run(folder_, "run", num_steps_, more_ + " --non-persistent-save-interval 1 --replication"));
  };
  launcher_ = launch("alpha");
  ASSERT_TRUE(wait_until(
      20, [&] { return std::system(concat("bash -c '</dev/tcp/127.0.0.1/", port, "' 2>/dev/null").c_str()) == 0; }));
  const auto beta = launch("beta");
  for (int number = 1; number <= 4; ++number) {
    const size_t target = steps() + 4;
    ASSERT_TRUE(wait_until(120, [&] { return steps() >= target || !launcher_->runs(); })) << launcher_->said();
    const Ranks here = launcher_->ranks(), there = beta->ranks();
    const bool is_here = number % 2 == 0;
    const int64_t victim = is_here ? 1 : 2;
    kill(is_here ? here.at(victim) : there.at(victim), SIGKILL);
    ASSERT_NO_FATAL_FAILURE(wait_for_start(static_cast<size_t>(number) + 1));
    Ranks before = here, after = launcher_->ranks();
    before.insert(there.begin(), there.end());
    for (const auto& [rank, pid] : beta->ranks()) after[rank] = pid;
    for (const auto& [rank, pid] : before) {
      if (rank == victim) continue;
      EXPECT_EQ(after.count(rank) != 0 ? after.at(rank) : -1, pid) << rank << "\n" << launcher_->said();
    }
  }
  ASSERT_TRUE(wait_until(120, [&] { return !beta->runs(); })) << beta->said();
  EXPECT_EQ(beta->exit_code(), 0) << beta->said();
  expect_ends_as_if_left_alone();
}

struct Case {
  const char *name, *flags;
  int64_t num_ranks;
};

class HeldRanksOf : public HeldRanks, public testing::WithParamInterface<Case> {};

TEST_P(HeldRanksOf, KeepTheirProcessesWhenOthersAreKilledAtRandom) {
  const auto& [name, flags, num_ranks] = GetParam();
  const int kills = in_suite_or_all(2, 30);
  start(num_ranks, 100 * (kills + 1), flags);  // a step may take 2 ms
  const uint32_t seed = std::random_device{}();
  const testing::ScopedTrace trace(__FILE__, __LINE__, concat("seed ", seed));
  std::mt19937 random(seed);
  for (int number = 0; number < kills; ++number) {
    const Ranks before = train_on(1 + random() % 10);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    const size_t starts_before = starts();
    const auto victim = static_cast<int64_t>(random() % static_cast<uint64_t>(num_ranks));
    const auto done = static_cast<int64_t>(steps());
    kill(before.at(victim), SIGKILL);
    ASSERT_NO_FATAL_FAILURE(wait_for_start(starts_before + 1));
    EXPECT_GE(start_step() + 1, done) << "so many steps were done\n" << launcher_->said();
    const Ranks after = launcher_->ranks();
    for (const auto& [rank, pid] : before) {
      if (rank == victim) continue;
      EXPECT_EQ(after.count(rank) != 0 ? after.at(rank) : -1, pid) << launcher_->said();
    }
  }
  expect_ends_as_if_left_alone();
}

// In the suite those that hold what the others do as well.
std::vector<Case> cases() {
  std::vector<Case> found = {
      {"Zero1", "--bf16 --use-distributed-optimizer", 2},
      {"Pipeline2", "--pipeline-model-parallel-size 2 --fp16", 2},
      {"Tensor2Replicas2", "--num-attention-heads 4 --tensor-model-parallel-size 2 --zero-stage 0", 4},
      {"Gloo", "--bf16 --distributed-backend gloo", 2},
  };
  if (long_version()) {
    found.push_back({"Replicas", "--bf16 --zero-stage 0", 2});
    found.push_back({"Tensor2", "--num-attention-heads 4 --tensor-model-parallel-size 2", 2});
  }
  return found;
}

INSTANTIATE_TEST_SUITE_P(, HeldRanksOf, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// Whatever it does: start, load, evaluate, save, exit.
TEST_F(HeldRanks, AreKilledWhateverTheyDo) {
  const int kills = in_suite_or_all(6, 60);
  start(2, 50 * (kills + 1), "--bf16 --save-interval 3 --eval-interval 4 --eval-iters 3 --split 80,20,0");
  const uint32_t seed = std::random_device{}();
  const testing::ScopedTrace trace(__FILE__, __LINE__, concat("seed ", seed));
  std::mt19937 random(seed);
  pid_t survivor = 0;
  int num_kept = 0;
  int number = 0;
  for (; number < kills && launcher_->runs(); ++number) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % (number == 0 ? 2500 : 700)));
    Ranks ranks;
    wait_until(20, [&] { return (ranks = launcher_->ranks()).size() == 2 || !launcher_->runs(); });
    if (!launcher_->runs()) break;
    const auto victim = static_cast<int64_t>(random() % 2);
    for (const auto& [rank, pid] : ranks) num_kept += pid == survivor;
    survivor = ranks.at(1 - victim);
    kill(ranks.at(victim), SIGKILL);
  }
  EXPECT_GE(number, 3) << "the run has ended before";
  EXPECT_GT(num_kept, 0) << launcher_->said();
  expect_ends_as_if_left_alone();
}

TEST_F(HeldRanks, GoOnAlsoWhereTwoAreKilledAtOnce) {
  start(4, 200, "--bf16");
  const Ranks before = train_on(5);
  kill(before.at(1), SIGKILL), kill(before.at(2), SIGKILL);
  ASSERT_NO_FATAL_FAILURE(wait_for_start(2));
  const Ranks after = launcher_->ranks();
  EXPECT_EQ(after.at(0), before.at(0)) << launcher_->said();
  EXPECT_EQ(after.at(3), before.at(3));
  expect_ends_as_if_left_alone();
}

// While it starts: then those that wait for it start anew as well, if they have not got further than that.
TEST_F(HeldRanks, WhatTakesAPlaceIsKilledToo) {
  start(4, 200, "--bf16");
  const Ranks before = train_on(5);
  kill(before.at(1), SIGKILL);
  for (int number = 0; number < 3; ++number) {
    Ranks now;
    ASSERT_TRUE(wait_until(30, [&] {
      now = launcher_->ranks();
      return now.size() == 4 && now.at(1) != before.at(1);
    })) << launcher_->said();
    std::this_thread::sleep_for(std::chrono::milliseconds(100 * number));
    kill(now.at(1), SIGKILL);
  }
  expect_ends_as_if_left_alone();
}

// It leaves nothing, and is ended after some seconds.
TEST_F(HeldRanks, OneThatStandsStillIsStartedAgainAsWell) {
  start(3, 200, "--global-batch-size 6 --train-samples 1200 --lr-decay-samples 1200 --bf16");
  const Ranks before = train_on(5);
  kill(before.at(2), SIGSTOP);
  kill(before.at(1), SIGKILL);
  ASSERT_NO_FATAL_FAILURE(wait_for_start(2));
  const Ranks after = launcher_->ranks();
  EXPECT_EQ(after.at(0), before.at(0)) << launcher_->said();
  EXPECT_NE(after.at(2), before.at(2));
  expect_ends_as_if_left_alone();
}

// A step takes much longer than a rank has to leave, and there is no exchange before its end.
TEST_F(HeldRanks, LeaveALongStepAtTheNextMicroBatch) {
  if (!long_version()) GTEST_SKIP() << "takes a minute: --all";
  start(2, 2, "--bf16 --global-batch-size 16384 --train-samples 32768 --lr-decay-samples 32768");
  const Ranks before = train_on(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(before.at(1), SIGKILL);
  ASSERT_NO_FATAL_FAILURE(wait_for_start(2));
  EXPECT_EQ(launcher_->ranks().at(0), before.at(0)) << launcher_->said();
  EXPECT_EQ(start_step(), 1);
  expect_ends_as_if_left_alone();
}

// It has been told to save and stop, by a signal that a scheduler sends once, and could not.
TEST_F(HeldRanks, StopAfterTheNextStartWhereTheyWereToldSoBefore) {
  start(2, 100000, "--bf16");
  const Ranks before = train_on(5);
  kill(before.at(1), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  launcher_->send(SIGUSR1);
  ASSERT_TRUE(wait_until(20, [&] { return launcher_->said().find("passed SIGUSR1 on") != std::string::npos; }));
  kill(before.at(1), SIGKILL);
  ASSERT_TRUE(wait_until(60, [&] { return !launcher_->runs(); })) << launcher_->said();
  EXPECT_EQ(launcher_->exit_code(), 0) << launcher_->said();
  EXPECT_EQ(starts(), 2u) << launcher_->said();
  EXPECT_NE(launcher_->said().find("SIGUSR1 on to the ranks, which had not stopped"), std::string::npos)
      << launcher_->said();
  EXPECT_TRUE(fs::exists(folder_ / "run" + format_printf("/step_%08d", static_cast<int>(steps()))));
}

// A kill switch that comes between a failure and the next start: nothing is on disk, so what is in memory is saved.
TEST_F(HeldRanks, SaveTheStepsInMemoryWhereTheKillSwitchComesBeforeTheyHaveLoaded) {
  const std::string kill_switch = folder_ / "end", flags = "--bf16 --kill-switch-path " + kill_switch;
  start(2, 200, flags);
  const Ranks before = train_on(5);
  kill(before.at(1), SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until the launcher knows it
  std::ofstream(kill_switch) << "end";
  ASSERT_TRUE(wait_until(60, [&] { return !launcher_->runs(); })) << launcher_->said();
  EXPECT_EQ(launcher_->exit_code(), 0) << launcher_->said();
  EXPECT_EQ(starts(), 2u) << launcher_->said();
  ASSERT_GE(steps(), 5u);
  EXPECT_LT(steps(), 200u);
  EXPECT_EQ(saved_steps(folder_ / "run"), std::vector<int64_t>{static_cast<int64_t>(steps())}) << launcher_->said();
  fs::remove(kill_switch);
  start(2, 200, flags);
  expect_ends_as_if_left_alone();
}

// The launcher has seen the kill switch, and the ranks could not save: one of them stands still, and is killed.
TEST_F(HeldRanks, SaveTheStepsInMemoryWhereARankIsKilledAfterTheKillSwitch) {
  const std::string kill_switch = folder_ / "end", flags = "--bf16 --kill-switch-path " + kill_switch;
  start(2, 200, flags);
  const Ranks before = train_on(5);
  kill(before.at(1), SIGSTOP);
  std::ofstream(kill_switch) << "end";
  ASSERT_TRUE(wait_until(20, [&] { return launcher_->said().find("' exists: waiting for") != std::string::npos; }));
  kill(before.at(1), SIGKILL);
  ASSERT_TRUE(wait_until(60, [&] { return !launcher_->runs(); })) << launcher_->said();
  EXPECT_EQ(launcher_->exit_code(), 0) << launcher_->said();
  EXPECT_EQ(starts(), 2u) << launcher_->said();
  EXPECT_EQ(saved_steps(folder_ / "run"), std::vector<int64_t>{static_cast<int64_t>(steps())}) << launcher_->said();
  fs::remove(kill_switch);
  start(2, 200, flags);
  expect_ends_as_if_left_alone();
}

class WithoutCopies : public testing::Test {
 protected:
  void SetUp() override {
    write_token_files(folder_ / "data", 300, 5);
    launcher_ = std::make_unique<LauncherProcess>(
        folder_ / "log", Words{"--nproc-per-node", "2", "--max-restarts", "3", "--shutdown-timeout", "10",
                               "--alert-command", "cat >>" + folder_ / "alerts"} +
                             unsaved_run(folder_, "run", 100000, "--bf16 --kill-switch-path " + kill_switch_));
    ASSERT_TRUE(wait_until(120, [&] { return num_records(folder_ / "run") >= 5 || !launcher_->runs(); }));
    ASSERT_TRUE(launcher_->runs()) << launcher_->said();
  }
  void make_kill_switch() {
    std::ofstream(kill_switch_) << "end";
    ASSERT_TRUE(wait_until(20, [&] {
      return launcher_->said().find("' exists: waiting for 2 ranks") != std::string::npos;
    })) << launcher_->said();
  }
  void expect_ends_as_killed(size_t starts) {
    ASSERT_TRUE(wait_until(60, [&] { return !launcher_->runs(); })) << launcher_->said();
    EXPECT_EQ(launcher_->exit_code(), 128 + SIGKILL) << launcher_->said();
    EXPECT_EQ(start_steps(folder_ / "run").size(), starts) << launcher_->said();
    const std::string alerts = read_file(folder_ / "alerts");
    EXPECT_NE(alerts.find("after the run was told to end (the kill switch '"), std::string::npos) << alerts;
  }

  TemporaryFolder folder_;
  const std::string kill_switch_ = folder_ / "end";
  std::unique_ptr<LauncherProcess> launcher_;
};

// A start after this one would see the kill switch and end well, though the steps since the last checkpoint are lost.
TEST_F(WithoutCopies, ARankThatIsKilledAfterTheKillSwitchFailsTheRun) {
  const Ranks ranks = launcher_->ranks();
  kill(ranks.at(1), SIGSTOP);
  make_kill_switch();
  kill(ranks.at(1), SIGKILL);
  expect_ends_as_killed(/*starts=*/1);
}

// There is nothing in memory that they could be reading.
TEST_F(WithoutCopies, ARestartThatHangsBeforeItTrainsIsEndedByTheKillSwitch) {
  const Ranks before = launcher_->ranks();
  kill(before.at(1), SIGKILL);
  Ranks now;
  ASSERT_TRUE(wait_until(30, [&] {
    now = launcher_->ranks();
    return now.size() == 2 && now.at(0) != before.at(0) && now.at(1) != before.at(1);
  })) << launcher_->said();
  kill(now.at(1), SIGSTOP);
  make_kill_switch();
  expect_ends_as_killed(/*starts=*/1);
}

// Killed while the checkpoint of step 200 is written, on a slow disk: it is never complete. The next would be due at
// step 400, which this run does not have.
TEST_F(HeldRanks, MakeASaveThatWasCutOffAsSoonAsTheyGoOn) {
  setenv("LD_PRELOAD", ESPALIER_PLANTED_FAULTS, 1);
  setenv("PLANTED_SLOW_DISK", "100", 1);
  start(2, 350, "--bf16 --save-interval 200");
  unsetenv("LD_PRELOAD"), unsetenv("PLANTED_SLOW_DISK");
  ASSERT_TRUE(wait_until(120, [&] { return steps() >= 205 || !launcher_->runs(); })) << launcher_->said();
  ASSERT_TRUE(fs::exists(folder_ / "run/step_00000200.partial")) << launcher_->said();
  kill(launcher_->ranks().at(0), SIGKILL);
  ASSERT_NO_FATAL_FAILURE(wait_for_start(2));
  const int64_t step = start_step();
  EXPECT_GE(step, 204);
  ASSERT_NO_FATAL_FAILURE(expect_ends_as_if_left_alone());
  EXPECT_EQ(saved_steps(folder_ / "run"), (std::vector<int64_t>{step, 350})) << launcher_->said();
}

constexpr int64_t kKibOfStarts = 16384;  // less than a copy of the weights of each

struct Use {
  int64_t files = 0, threads = 0, mappings = 0, kib = 0;  // mappings: of files and shared memory
};

Use use_of(pid_t pid) {
  Use use;
  use.files = std::distance(fs::directory_iterator(concat("/proc/", pid, "/fd")), fs::directory_iterator());
  std::ifstream status(concat("/proc/", pid, "/status")), maps(concat("/proc/", pid, "/maps"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Threads:")) use.threads = std::stoll(line.substr(8));
    if (line.starts_with("RssAnon:")) use.kib = std::stoll(line.substr(8));
  }
  for (std::string line; std::getline(maps, line);) use.mappings += line.find('/') != std::string::npos;
  return use;
}

Use least_of(const std::vector<Use>& uses, size_t begin, size_t end) {
  Use least = uses.at(begin);
  for (size_t at = begin; at < end; ++at) {
    least.files = std::min(least.files, uses.at(at).files);
    least.threads = std::min(least.threads, uses.at(at).threads);
    least.mappings = std::min(least.mappings, uses.at(at).mappings);
    least.kib = std::min(least.kib, uses.at(at).kib);
  }
  return least;
}

class HeldRanksOverMany : public HeldRanks, public testing::WithParamInterface<const char*> {};

// Of two ranks the second is killed again and again; the first is one process from the beginning to the end.
TEST_P(HeldRanksOverMany, StartsKeepNothingOfThoseBefore) {
  if (!long_version() && GetParam() == std::string("gloo")) GTEST_SKIP() << "takes a minute: --all";
  const int kills = in_suite_or_all(12, 20);
  start(2, 60 * (kills + 2),
        concat("--bf16 --hidden-size 192 --use-distributed-optimizer --save-interval 50 --distributed-backend ",
               GetParam()));
  std::vector<Use> uses;
  pid_t first = 0;
  for (int number = 0; number < kills; ++number) {
    const Ranks ranks = train_on(4);
    if (number == 0) first = ranks.at(0);
    ASSERT_EQ(ranks.at(0), first) << launcher_->said();
    // A save that is under way has threads and files of its own; after most kills one is, as it was cut off.
    EXPECT_TRUE(wait_until(60, [&] { return !is_saving(); })) << launcher_->said();
    uses.push_back(use_of(first));
    const size_t starts_before = starts();
    kill(ranks.at(1), SIGKILL);
    ASSERT_NO_FATAL_FAILURE(wait_for_start(starts_before + 1));
  }
  // What is kept for ever is there by then, and one of three looks is not in the middle of the next save.
  const Use before = least_of(uses, 3, 6), after = least_of(uses, uses.size() - 3, uses.size());
  std::printf("%lld and %lld files, %lld and %lld threads, %lld and %lld mappings of %lld and %lld KiB\n",
              static_cast<long long>(before.files), static_cast<long long>(after.files),
              static_cast<long long>(before.threads), static_cast<long long>(after.threads),
              static_cast<long long>(before.mappings), static_cast<long long>(after.mappings),
              static_cast<long long>(before.kib), static_cast<long long>(after.kib));
  EXPECT_EQ(after.files, before.files);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.mappings, before.mappings);
  EXPECT_LE(after.kib, before.kib + kKibOfStarts);
  expect_ends_as_if_left_alone();
}

INSTANTIATE_TEST_SUITE_P(, HeldRanksOverMany, testing::Values("nccl", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace hold_test
}  // namespace espalier::test
