// Machines (launchers, all on this one) that are lost for good with the memory of their launchers: another in their
// place goes on from the copies that the rest hold, to the bits of a run that was left alone.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>

#include "base/format.h"
#include "tests/launch/launch_fixture.h"
#include "tests/launch/launcher_process.h"

namespace espalier::test {
namespace replication_test {

const std::string kFromMemory = "going on from the copy of the state at iteration ";

size_t count(const std::string& text, const std::string& part) {
  size_t number = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++number;
  return number;
}

class Replication : public testing::Test {
 protected:
  void SetUp() override { write_token_files(folder_ / "data", 300, 5); }

  // The first by name hosts the rendezvous store, and has the first ranks.
  std::unique_ptr<LauncherProcess> machine(const std::string& name, int64_t num_machines, int64_t num_ranks,
                                           const Words& run) {
    return std::make_unique<LauncherProcess>(
        folder_ / (concat(name, ".", num_launchers_++, ".log")),
        split_blanks(concat("--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:", port_, " --rdzv-id a --nnodes ",
                            num_machines, " --local-addr ", name, " --nproc-per-node ", num_ranks,
                            " --max-restarts 100 --shutdown-timeout 10")) +
            run);
  }
  bool hosts_store() const {
    return std::system(concat("bash -c '</dev/tcp/127.0.0.1/", port_, "' 2>/dev/null").c_str()) == 0;
  }
  // Starts it, and waits until it hosts the rendezvous store.
  std::unique_ptr<LauncherProcess> host(int64_t num_machines, int64_t num_ranks, const Words& run) {
    auto alpha = machine("alpha", num_machines, num_ranks, run);
    EXPECT_TRUE(wait_until(20, [&] { return hosts_store(); })) << alpha->said();
    return alpha;
  }
  size_t steps() const { return num_records(folder_ / "run"); }
  void expect_ends_well(LauncherProcess& launcher) const {
    ASSERT_TRUE(wait_until(180, [&] { return !launcher.runs(); })) << launcher.said();
    EXPECT_EQ(launcher.exit_code(), 0) << launcher.said();
  }
  // An undisturbed run of as many ranks on one machine has the same steps and, in the end, the same tensors.
  void expect_equal(int64_t num_ranks, int64_t steps, const std::string& more) const {
    const Shell result = shell(folder_, concat("espalier launch --nproc-per-node ", num_ranks,
                                               command_line(unsaved_run(folder_, "straight", steps, more))));
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(step_records(folder_ / "run"), step_records(folder_ / "straight"));
    const std::string step = format_printf("/step_%08d", static_cast<int>(steps));
    EXPECT_EQ(different_tensors(folder_ / "straight" + step, folder_ / "run" + step), Words{});
  }
  std::vector<int64_t> starts() const { return start_steps(folder_ / "run"); }
  // Of all that were done and done again, by restart.
  std::vector<int64_t> steps_lost(const std::string& said) const {
    std::vector<int64_t> lost;
    const std::string mark = " records after step ";
    for (size_t at = said.find(mark); at != std::string::npos; at = said.find(mark, at + 1))
      lost.push_back(std::stoll(said.substr(said.rfind('\n', at) + 1)));
    return lost;
  }

  void kill_at_random(const std::string& flags, int kills);

  TemporaryFolder folder_;
  const int port_ = 20000 + static_cast<int>(getpid() % 9000);
  int num_launchers_ = 0;
};

struct Case {
  const char *name, *flags;
  int64_t ranks_per_machine;
  bool sends;
};

class OfLayout : public Replication, public testing::WithParamInterface<Case> {};

// Nothing is on disk before the end: without the copies in memory the run would begin again at step 0.
TEST_P(OfLayout, AMachineThatIsLostIsReplacedByOneWithoutMemory) {
  const auto& [name, flags, num_ranks, sends] = GetParam();
  const std::string kept = concat(flags, " --non-persistent-save-interval 1 --replication");
  constexpr int64_t kSteps = 60;
  const Words run = unsaved_run(folder_, "run", kSteps, kept);
  const auto alpha = host(2, num_ranks, run);
  auto beta = machine("beta", 2, num_ranks, run);
  ASSERT_TRUE(wait_until(60, [&] { return steps() >= 20; })) << alpha->said();
  beta->end(SIGKILL);
  beta = machine("beta", 2, num_ranks, run);
  ASSERT_NO_FATAL_FAILURE(expect_ends_well(*alpha));
  ASSERT_NO_FATAL_FAILURE(expect_ends_well(*beta));
  const std::string said = alpha->said();
  EXPECT_EQ(count(said, kFromMemory), 1u) << said;
  EXPECT_EQ(count(said, "the copy of the state was at another machine after"), sends ? 2u : 0u) << said;
  ASSERT_EQ(starts().size(), 2u);
  EXPECT_GE(starts()[1], 19);
  for (const int64_t lost : steps_lost(said)) EXPECT_LE(lost, 1) << said;
  expect_equal(2 * num_ranks, kSteps, flags);
}

INSTANTIATE_TEST_SUITE_P(, OfLayout,
                         testing::Values(Case{"Replicas", "--bf16 --zero-stage 0", 1, false},
                                         Case{"Zero1", "--bf16 --use-distributed-optimizer", 1, true},
                                         Case{"Tensor2Replicas2",
                                              "--num-attention-heads 4 --tensor-model-parallel-size 2 --zero-stage 0",
                                              2, false},
                                         Case{"Tensor2Zero1",
                                              "--num-attention-heads 4 --tensor-model-parallel-size 2 "
                                              "--use-distributed-optimizer",
                                              2, true},
                                         Case{"Pipeline2", "--pipeline-model-parallel-size 2 --fp16", 1, true}),
                         [](const auto& info) { return std::string(info.param.name); });

// Another name may come before those of machines that stay: their ranks have other numbers then.
TEST_F(Replication, ASpareMachineOfAnotherNameChangesWhoIsWhichRank) {
  const std::string flags =
      "--bf16 --use-distributed-optimizer --canonical-reduction --global-batch-size 6 --train-samples 720 "
      "--lr-decay-samples 720";
  constexpr int64_t kSteps = 120;
  const Words run = unsaved_run(folder_, "run", kSteps, flags + " --non-persistent-save-interval 1 --replication");
  const auto alpha = host(3, 1, run);
  auto gamma = machine("gamma", 3, 1, run);
  const auto delta = machine("delta", 3, 1, run);
  ASSERT_TRUE(wait_until(60, [&] { return steps() >= 20; })) << alpha->said();
  gamma->end(SIGKILL);  // rank 2; delta, rank 1, is to be the last now
  const auto beta = machine("beta", 3, 1, run);
  for (LauncherProcess* one : {alpha.get(), beta.get(), delta.get()}) ASSERT_NO_FATAL_FAILURE(expect_ends_well(*one));
  EXPECT_EQ(count(alpha->said(), kFromMemory), 1u) << alpha->said();
  EXPECT_GE(starts().at(1), 19);
  expect_equal(3, kSteps, flags);
}

// Of two machines with a rank each, of which the second is lost again and again, or the rank of either is killed.
void Replication::kill_at_random(const std::string& flags, int kills) {
  const int64_t num_steps = 15 * (kills + 1);
  const Words run = unsaved_run(folder_, "run", num_steps, flags + " --non-persistent-save-interval 1 --replication");
  const auto alpha = host(2, 1, run);
  auto beta = machine("beta", 2, 1, run);
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int number = 0; number < kills; ++number) {
    const size_t target = steps() + 2 + random() % 10;
    ASSERT_TRUE(wait_until(120, [&] { return steps() >= target || !alpha->runs(); })) << alpha->said();
    ASSERT_TRUE(alpha->runs()) << number << " kills only\n" << alpha->said();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    const int victim = static_cast<int>(random() % 4);
    if (victim < 2) {  // the machine
      beta->end(SIGKILL);
      beta = machine("beta", 2, 1, run);
    } else {
      LauncherProcess& launcher = victim == 2 ? *alpha : *beta;
      for (const auto& [rank, pid] : launcher.ranks()) kill(pid, SIGKILL);
    }
    const auto starts_before = starts().size();
    ASSERT_TRUE(wait_until(120, [&] { return starts().size() > starts_before || !alpha->runs(); })) << alpha->said();
  }
  ASSERT_NO_FATAL_FAILURE(expect_ends_well(*alpha));
  ASSERT_NO_FATAL_FAILURE(expect_ends_well(*beta));
  int64_t most_lost = 0;
  for (const int64_t lost : steps_lost(alpha->said())) most_lost = std::max(most_lost, lost);
  EXPECT_LE(most_lost, 1) << "seed " << seed << "\n" << alpha->said();
  const std::vector<int64_t> begun = starts();
  EXPECT_GT(std::count_if(begun.begin(), begun.end(), [](int64_t step) { return step > 0; }), kills - 2);
  std::printf("%d kills in %lld steps, at most %lld done again\n", kills, static_cast<long long>(num_steps),
              static_cast<long long>(most_lost));
  expect_equal(2, num_steps, flags);
}

TEST_F(Replication, RandomKillsOfMachinesAndRanksCostAStepAtMost) {
  kill_at_random("--bf16 --use-distributed-optimizer --hidden-size 96 --num-attention-heads 4", in_suite_or_all(4, 30));
}

// A copy takes about as long as a step: training waits for some of them, and most kills come while one is under way.
TEST_F(Replication, KillsInTheMiddleOfCopiesCostAStepAtMost) {
  kill_at_random("--bf16 --use-distributed-optimizer --num-layers 4 --hidden-size 256 --num-attention-heads 4",
                 in_suite_or_all(2, 15));
}

TEST_F(Replication, HasNoEffectOnOneMachineAndSaysSo) {
  const Shell result =
      shell(folder_, "espalier launch --nproc-per-node 2 " +
                         command_line(unsaved_run(folder_, "run", 20,
                                                  "--use-distributed-optimizer --non-persistent-save-interval 1 "
                                                  "--replication")));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("--replication has no effect: all ranks are on one machine"), std::string::npos)
      << result.errors;
}

TEST_F(Replication, AJumpToTheSameMachineIsRefused) {
  const Words run = unsaved_run(folder_, "run", 20,
                                "--use-distributed-optimizer --non-persistent-save-interval 1 --replication "
                                "--replication-jump 1");
  const auto alpha = host(2, 2, run), beta = machine("beta", 2, 2, run);
  for (LauncherProcess* one : {alpha.get(), beta.get()}) ASSERT_TRUE(wait_until(60, [&] { return !one->runs(); }));
  EXPECT_EQ(alpha->exit_code(), 2) << alpha->said();
  EXPECT_NE(alpha->said().find("--replication-jump 1: the copies of rank 0 would go to rank 1, which is on the same "
                               "machine"),
            std::string::npos)
      << alpha->said();
}

}  // namespace replication_test
}  // namespace espalier::test
