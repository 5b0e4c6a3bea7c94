// A rank that stops in the middle of a run: it is named, and the run continues without a person.
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/e2e/run_files.h"
#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace hang_test {

class HangingRank : public testing::Test {
 protected:
  std::string training(const std::string& save, const Words& more) const {
    const std::string run = shell_word(folder_ / save);
    return "train gpt" + command_line(tiny_run(folder_ / "data") + Words{"--num-threads", "1"} + more) +
           " --save-interval 2 --save " + run + " --load " + run;
  }
  // Shell functions, and `folder`.
  std::string preamble() const { return concat(kAwait, kRank, "folder=", shell_word(folder_.path()), "\n"); }
  TemporaryFolder folder_;
};

TEST_F(HangingRank, IsNamedAndTheRunGoesOnToTheSameBits) {
  write_token_files(folder_ / "data", 300, 5);
  const Words length = {"--train-samples", "320"};
  const Shell run = shell(folder_, preamble() + "espalier launch --nproc-per-node 3 --max-restarts 1 " +
                                       training("hung", length + Words{"--global-batch-size", "6"}) +
                                       R"( 2>$folder/log & launcher=$!
    await grep -qs '"step":3,' $folder/hung/metrics.jsonl
    kill -STOP $(rank 1); start=$SECONDS
    await grep -q 'the run hangs' $folder/log
    echo "named after $((SECONDS - start)) s" >&2
    wait $launcher; echo "launcher: $?"
    espalier launch --nproc-per-node 3 )" +
                                       training("straight", length + Words{"--global-batch-size", "6"}) +
                                       R"( 2>/dev/null; espalier checkpoint diff $folder/straight $folder/hung)");
  const std::string log = read_file(folder_ / "log");
  EXPECT_TRUE(run.output.starts_with("launcher: 0\n")) << run.output << run.errors << log;
  EXPECT_NE(run.output.find("bitwise equal"), std::string::npos) << run.output;
  EXPECT_NE(log.find("the run hangs: rank 1 (process "), std::string::npos) << log;
  // Between two steps it may be saving.
  EXPECT_TRUE(log.find("is stopped (SIGSTOP, or a debugger) in phase train, step ") != std::string::npos ||
              log.find("is stopped (SIGSTOP, or a debugger) in phase save, step ") != std::string::npos)
      << log;
  EXPECT_NE(log.find("; ranks 0, 2 wait in "), std::string::npos) << log;
  EXPECT_NE(read_file(folder_ / "hung/events.jsonl").find("\"event\":\"hang\""), std::string::npos);
  // Where all ranks were, before the hung one was ended.
  const size_t at = log.find("stacks (");
  ASSERT_NE(at, std::string::npos) << log;
  const std::string line = log.substr(at, log.find('\n', at) - at);
  EXPECT_NE(line.find("ranks 0, 2 in espalier::"), std::string::npos) << line;
  EXPECT_NE(line.find("rank 1 is stopped (SIGSTOP, or a debugger) and cannot answer"), std::string::npos) << line;
  const std::string stacks = read_file(line.substr(8, line.find(')') - 8));
  EXPECT_NE(stacks.find(": the run hangs: rank 1 (process "), std::string::npos) << stacks;
  EXPECT_NE(stacks.find("ranks 0, 2, main thread\n"), std::string::npos) << stacks;
  EXPECT_NE(stacks.find("espalier::dist::"), std::string::npos) << stacks;
}

TEST_F(HangingRank, IsNamedInAnEvaluation) {
  write_token_files(folder_ / "data", 300, 5);
  const Shell run =
      shell(folder_, preamble() + "espalier launch --nproc-per-node 2 " +
                         training("run", {"--train-samples", "320", "--eval-iters", "100000", "--eval-interval", "2"}) +
                         R"( 2>$folder/log & launcher=$!
    await grep -qs '"step":2,' $folder/run/metrics.jsonl
    sleep 0.5; kill -STOP $(rank 0)
    wait $launcher; echo "launcher: $?")");
  const std::string log = read_file(folder_ / "log");
  EXPECT_EQ(run.output, "launcher: 137\n") << run.errors << log;
  EXPECT_NE(log.find("the run hangs: rank 0 (process "), std::string::npos) << log;
  EXPECT_NE(log.find("in phase evaluate, step 2"), std::string::npos) << log;
}

TEST_F(HangingRank, IsLeftAloneWhereAllAreStoppedOrTheTimeoutIsZero) {
  write_token_files(folder_ / "data", 300, 5);
  const Shell run = shell(folder_, preamble() + "espalier launch --hang-timeout 1 --nproc-per-node 2 " +
                                       training("run", {"--train-samples", "80000"}) + R"( 2>$folder/log & launcher=$!
    await grep -qs '"step":3,' $folder/run/metrics.jsonl
    kill -STOP $(rank 0) $(rank 1)
    await grep -q 'all ranks on this machine are stopped' $folder/log
    kill -CONT $(rank 0) $(rank 1)
    kill -TERM $launcher; wait $launcher; echo "launcher: $?"
    espalier launch --hang-timeout 0 --nproc-per-node 2 )" +
                                       training("other", {"--train-samples", "80000"}) +
                                       R"( 2>$folder/log2 & launcher=$!
    await grep -qs '"step":3,' $folder/other/metrics.jsonl
    kill -STOP $(rank 1); sleep 7; kill -CONT $(rank 1)
    kill -TERM $launcher; wait $launcher; echo "launcher: $?")");
  EXPECT_EQ(run.output, "launcher: 0\nlauncher: 0\n") << run.errors << read_file(folder_ / "log2");
  EXPECT_EQ(read_file(folder_ / "log2").find("hangs"), std::string::npos);
}

}  // namespace hang_test
}  // namespace espalier::test
