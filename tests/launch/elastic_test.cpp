// A run on a changing number of machines (launchers, all on this one): one is lost for good, the others go on with the
// same batch; one comes back, and is taken in. With --canonical-reduction to the bits of a run that was left alone.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <memory>

#include "base/format.h"
#include "tests/launch/launch_fixture.h"
#include "tests/launch/launcher_process.h"

namespace espalier::test {
namespace elastic_test {

// The launcher of one machine, with one rank.
class Machine : public LauncherProcess {
 public:
  using LauncherProcess::LauncherProcess;

  int num_said(const std::string& part) const {
    const std::string text = said();
    int count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
    return count;
  }
  bool has_said(const std::string& part) const { return num_said(part) > 0; }
  // Whether something listens at that port.
  static bool hosts_store(int port) {
    return std::system(concat("bash -c '</dev/tcp/127.0.0.1/", port, "' 2>/dev/null").c_str()) == 0;
  }
  // Its rank, one on each machine; 0 where there is none.
  pid_t rank() const {
    const std::map<int64_t, pid_t> all = ranks();
    return all.empty() ? 0 : all.begin()->second;
  }
};

class Elastic : public testing::Test {
 protected:
  void SetUp() override { write_token_files(folder_ / "data", 300, 5); }

  // So many micro-batches of one sample a step, and more steps than will be made.
  Words training(const std::string& save, int64_t micro_batches, const Words& more) const {
    return Words{"train", "gpt"} + tiny_run(folder_ / "data") +
           Words{"--micro-batch-size",
                 "1",
                 "--global-batch-size",
                 std::to_string(micro_batches),
                 "--train-samples",
                 "6000000",
                 "--lr-decay-samples",
                 "6000000",
                 "--num-threads",
                 "1",
                 "--eval-interval",
                 "10000000",
                 "--eval-iters",
                 "0",
                 "--save",
                 folder_ / save,
                 "--load",
                 folder_ / save} +
           more;
  }
  // The first hosts the rendezvous store. Their ranks are in the order of the names.
  std::unique_ptr<Machine> machine(const std::string& name, const Words& launch, const Words& run,
                                   const std::string& num_ranks = "1") const {
    return std::make_unique<Machine>(
        folder_ / (name + ".log"),
        Words{"--rdzv-backend", "c10d", "--rdzv-endpoint", concat("127.0.0.1:", port_), "--rdzv-id", "elastic",
              "--local-addr", name, "--nproc-per-node", num_ranks, "--shutdown-timeout", "10"} +
            launch + run);
  }
  size_t steps() const { return num_records(folder_ / "elastic"); }
  bool makes_steps(size_t count) const {
    const size_t before = steps();
    return wait_until(120, [&] { return steps() >= before + count; });
  }
  // The run has saved and ended. An undisturbed run of one process has the same tensors after that step, and the same
  // samples, losses and norms in all steps before.
  void expect_equal(const Words& alone) const {
    const auto found = step_records(folder_ / "elastic");
    const int64_t last = found.back().at("step");
    const Words until_last = {"--exit-interval", std::to_string(last)};
    const Shell result = shell(folder_, "espalier" + command_line(alone + until_last));
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const auto wanted = step_records(folder_ / "straight");
    ASSERT_EQ(found.size(), static_cast<size_t>(last));
    ASSERT_EQ(wanted.size(), static_cast<size_t>(last));
    for (size_t step = 0; step < found.size(); ++step)
      for (const char* figure : {"step", "consumed_samples", "sample_hash", "lm_loss", "grad_norm"})
        EXPECT_EQ(found[step].at(figure), wanted[step].at(figure)) << "step " << step + 1 << " " << figure;
    const std::string folder = format_printf("/step_%08d", static_cast<int>(last));
    EXPECT_EQ(different_tensors(folder_ / "straight" + folder, folder_ / "elastic" + folder), Words{});
  }
  static void expect_in_order(const std::string& said, const Words& parts) {
    size_t at = 0;
    for (const std::string& part : parts) {
      at = said.find(part, at);
      ASSERT_NE(at, std::string::npos) << part << "\n" << said;
    }
  }

  TemporaryFolder folder_;
  const int port_ = 20000 + static_cast<int>(getpid() % 9000);
};

TEST_F(Elastic, ALostMachineIsDoneWithoutAndTakenBackWhenItReturns) {
  const Words range = {"--nnodes", "1:3", "--rdzv-conf", "last_call_timeout=3"};
  const Words flags = {"--save-interval", "5", "--canonical-reduction"};
  const Words run = training("elastic", 12, flags);
  const auto alpha = machine("alpha", range, run);
  ASSERT_TRUE(wait_until(20, [&] { return alpha->hosts_store(port_); })) << alpha->said();
  const auto beta = machine("beta", range, run);
  auto gamma = machine("gamma", range, run);
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  gamma->end(SIGKILL);
  ASSERT_TRUE(wait_until(60, [&] { return alpha->has_said("starting 2 ranks again"); })) << alpha->said();
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  gamma = machine("gamma", range, run);
  ASSERT_TRUE(wait_until(60, [&] { return alpha->has_said("starting 3 ranks again"); })) << alpha->said();
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  alpha->send(SIGTERM);
  for (Machine* one : {alpha.get(), beta.get(), gamma.get()}) {
    ASSERT_TRUE(wait_until(60, [&] { return !one->runs(); })) << one->said();
    EXPECT_EQ(one->exit_code(), 0) << one->said();
  }
  expect_in_order(
      alpha->said(),
      {"starting 3 ranks on 3 machines", "the launcher on gamma (pid ", "starting 2 ranks again on 2 machines",
       "gamma waits to take part: the run saves and starts again with it", "starting 3 ranks again on 3 machines"});
  expect_equal(training("straight", 12, flags));
}

// Four machines divide eight micro-batches, three do not: one of them waits until there are four again.
TEST_F(Elastic, MachinesThatDoNotDivideTheBatchWait) {
  const Words range = {"--nnodes", "1:4", "--rdzv-conf", "last_call_timeout=3", "--max-restarts", "3"};
  const Words flags = {"--save-interval", "5", "--canonical-reduction", "--use-distributed-optimizer"};
  const Words run = training("elastic", 8, flags);
  const auto alpha = machine("alpha", range, run);
  ASSERT_TRUE(wait_until(20, [&] { return alpha->hosts_store(port_); })) << alpha->said();
  const auto beta = machine("beta", range, run), gamma = machine("gamma", range, run);
  auto delta = machine("delta", range, run);
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  beta->send(SIGKILL);
  ASSERT_TRUE(wait_until(60, [&] { return alpha->has_said("starting 2 ranks again"); })) << alpha->said();
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  EXPECT_TRUE(gamma->has_said("waits for their next start")) << gamma->said();
  const auto again = machine("beta", range, run);
  ASSERT_TRUE(wait_until(60, [&] { return alpha->has_said("starting 4 ranks again"); })) << alpha->said();
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  alpha->send(SIGTERM);
  for (Machine* one : {alpha.get(), gamma.get(), delta.get(), again.get()}) {
    ASSERT_TRUE(wait_until(60, [&] { return !one->runs(); })) << one->said();
    EXPECT_EQ(one->exit_code(), 0) << one->said();
  }
  expect_equal(training("straight", 8, flags));
}

// Something kills the rank of one machine whenever it starts: the others go on without that machine, also
// where it hosts the rendezvous store.
TEST_F(Elastic, AMachineThatFailsAgainAndAgainIsLeftOut) {
  const Words range = {"--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=1", "--max-restarts", "1"};
  const Words flags = {"--save-interval", "1000000", "--canonical-reduction"};
  const Words run = training("elastic", 12, flags);
  const auto alpha = machine("alpha", range, run);
  ASSERT_TRUE(wait_until(20, [&] { return alpha->hosts_store(port_); })) << alpha->said();
  const auto beta = machine("beta", range, run);
  ASSERT_TRUE(makes_steps(1)) << alpha->said();
  const std::string verdict = "this machine takes part no more, the others go on without it";
  ASSERT_TRUE(wait_until(120, [&] {
    if (const pid_t rank = alpha->rank(); rank > 0) kill(rank, SIGKILL);
    return alpha->has_said(verdict);
  })) << alpha->said();
  ASSERT_TRUE(wait_until(60, [&] { return beta->has_said("starting 1 rank again on 1 machine"); })) << beta->said();
  ASSERT_TRUE(makes_steps(8)) << beta->said();
  EXPECT_TRUE(alpha->runs()) << "it hosts the rendezvous store";
  beta->send(SIGTERM);
  ASSERT_TRUE(wait_until(60, [&] { return !beta->runs() && !alpha->runs(); })) << alpha->said();
  EXPECT_EQ(beta->exit_code(), 0) << beta->said();
  EXPECT_EQ(alpha->exit_code(), 137) << alpha->said();
  expect_equal(training("straight", 12, flags));
}

// Each replica holds the whole state, and what the others keep in memory is that of the lost one as well. Nothing is on
// disk when the machine is lost.
TEST_F(Elastic, ReplicasGoOnFromTheCopiesInMemoryWhateverTheirNumber) {
  const Words range = {"--nnodes", "1:3", "--rdzv-conf", "last_call_timeout=3"};
  const Words flags = {"--save-interval", "1000000", "--canonical-reduction"};
  const Words run = training("elastic", 12, flags + Words{"--non-persistent-save-interval", "1"});
  const auto alpha = machine("alpha", range, run);
  ASSERT_TRUE(wait_until(20, [&] { return alpha->hosts_store(port_); })) << alpha->said();
  const auto beta = machine("beta", range, run);
  auto gamma = machine("gamma", range, run);
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  const std::string from_memory = "going on from the copy of the state at iteration ";
  gamma->end(SIGKILL);
  ASSERT_TRUE(wait_until(60, [&] { return alpha->num_said(from_memory) == 1; })) << alpha->said();
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  gamma = machine("gamma", range, run);
  ASSERT_TRUE(wait_until(60, [&] { return alpha->num_said(from_memory) == 2; })) << alpha->said();
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  alpha->send(SIGTERM);
  for (Machine* one : {alpha.get(), beta.get(), gamma.get()}) {
    ASSERT_TRUE(wait_until(60, [&] { return !one->runs(); })) << one->said();
    EXPECT_EQ(one->exit_code(), 0) << one->said();
  }
  expect_in_order(alpha->said(), {"starting 3 ranks on 3 machines", "starting 2 ranks again on 2 machines", from_memory,
                                  "starting 3 ranks again on 3 machines", from_memory});
  expect_equal(training("straight", 12, flags));
}

// What is left is one machine, whose replicas would divide the optimizer's work if that were all there ever was.
TEST_F(Elastic, ReplicasOfTheLastMachineGoOnFromTheCopiesToo) {
  const Words range = {"--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=3"};
  const Words flags = {"--save-interval", "1000000", "--canonical-reduction"};
  const Words run = training("elastic", 12, flags + Words{"--non-persistent-save-interval", "1"});
  const auto alpha = machine("alpha", range, run, "2");
  ASSERT_TRUE(wait_until(20, [&] { return alpha->hosts_store(port_); })) << alpha->said();
  const auto beta = machine("beta", range, run, "2");
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  beta->end(SIGKILL);
  const std::string from_memory = "going on from the copy of the state at iteration ";
  ASSERT_TRUE(wait_until(60, [&] { return alpha->num_said(from_memory) == 1; })) << alpha->said();
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  alpha->send(SIGTERM);
  ASSERT_TRUE(wait_until(60, [&] { return !alpha->runs(); })) << alpha->said();
  EXPECT_EQ(alpha->exit_code(), 0) << alpha->said();
  expect_in_order(alpha->said(),
                  {"starting 4 ranks on 2 machines", "starting 2 ranks again on 1 machine", from_memory});
  expect_equal(training("straight", 12, flags));
}

// What ZeRO has divided over three is not that of two.
TEST_F(Elastic, CopiesOfAnotherLayoutAreNotTakenAndItIsSaid) {
  const Words range = {"--nnodes", "1:3", "--rdzv-conf", "last_call_timeout=3"};
  const Words flags = {"--save-interval", "5", "--canonical-reduction", "--use-distributed-optimizer"};
  const Words run = training("elastic", 12, flags + Words{"--non-persistent-save-interval", "1", "--replication"});
  const auto alpha = machine("alpha", range, run);
  ASSERT_TRUE(wait_until(20, [&] { return alpha->hosts_store(port_); })) << alpha->said();
  const auto beta = machine("beta", range, run);
  const auto gamma = machine("gamma", range, run);
  ASSERT_TRUE(wait_until(120, [&] { return !saved_steps(folder_ / "elastic").empty(); })) << alpha->said();
  gamma->end(SIGKILL);
  ASSERT_TRUE(wait_until(60, [&] { return alpha->has_said("starting 2 ranks again"); })) << alpha->said();
  ASSERT_TRUE(makes_steps(8)) << alpha->said();
  alpha->send(SIGTERM);
  for (Machine* one : {alpha.get(), beta.get()}) {
    ASSERT_TRUE(wait_until(60, [&] { return !one->runs(); })) << one->said();
    EXPECT_EQ(one->exit_code(), 0) << one->said();
  }
  expect_in_order(alpha->said(),
                  {"starting 2 ranks again on 2 machines",
                   "the copies of the state in memory are not those of all ranks of this layout: they are not taken",
                   "successfully loaded checkpoint"});
  expect_equal(training("straight", 12, flags));
}

TEST_F(Elastic, ABatchThatNoNumberOfMachinesDividesIsRefusedAtOnce) {
  const Words run = training("elastic", 7, {});
  const std::string launch = "espalier launch --nnodes 2:4 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:1";
  const Shell result = shell(folder_, launch + command_line(run));
  EXPECT_EQ(result.exit_code, 2) << result.errors;
  EXPECT_NE(result.errors.find("--global-batch-size 7 (command line) is not a multiple of --micro-batch-size 1"),
            std::string::npos)
      << result.errors;
}

}  // namespace elastic_test
}  // namespace espalier::test
