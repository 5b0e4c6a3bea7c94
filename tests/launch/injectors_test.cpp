// Faults of the machine planted into runs: too little memory, a slow disk, a system call of a save that fails.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <fstream>

#include "base/format.h"
#include "tests/launch/launch_fixture.h"
#include "tests/launch/launcher_process.h"
#include "tests/support/memory_limit.h"
#include "tests/support/planted_hang.h"

namespace espalier::test {
namespace injectors_test {

class Injected : public testing::Test {
 protected:
  Injected() { write_token_files(folder_ / "data", 300, 5); }
  void TearDown() override {
    unsetenv("LD_PRELOAD");
    unsetenv("PLANTED_SLOW_DISK");
  }
  Words training(const std::string& save, const Words& more = {}) const {
    return Words{"train", "gpt"} + tiny_run(folder_ / "data") +
           Words{"--num-threads", "1",      "--eval-interval", "100000", "--save",
                 folder_ / save,  "--load", folder_ / save} +
           more;
  }
  static bool has_ended(LauncherProcess& launcher) {
    return wait_until(180, [&] { return !launcher.runs(); });
  }
  TemporaryFolder folder_;
};

// The kernel ends a rank that takes more than its control group may: the cause is named, and the run goes on to the
// bits of one that was left alone.
TEST_F(Injected, ARankThatRunsOutOfMemoryIsNamedSoAndTheRunGoesOn) {
  const std::string why = MemoryLimit::trouble();
  if (!why.empty()) GTEST_SKIP() << why;
  const Words more = {"--train-samples", "1600", "--lr-decay-samples", "1600", "--save-interval", "5"};
  const Shell straight =
      shell(folder_, "espalier launch --nproc-per-node 2" + command_line(training("straight", more)));
  ASSERT_EQ(straight.exit_code, 0) << straight.errors;
  MemoryLimit limit;
  setenv("LD_PRELOAD", ESPALIER_PLANTED_FAULTS, 1);
  LauncherProcess run(folder_ / "log", Words{"--nproc-per-node", "2", "--max-restarts", "1"} + training("run", more));
  limit.add(run.pid());
  ASSERT_TRUE(wait_until(60, [&] { return num_records(folder_ / "run") > 12 && run.ranks().size() == 2; }));
  limit.set(limit.used_bytes() + (int64_t{200} << 20));
  send_planted(run.ranks().at(1), 3);
  ASSERT_TRUE(has_ended(run));
  const std::string log = run.said();
  EXPECT_EQ(run.exit_code(), 0) << log;
  EXPECT_NE(log.find("failed (signal 9, SIGKILL: out of memory, as the kernel says"), std::string::npos) << log;
  EXPECT_NE(read_file(folder_ / "run/crashes.jsonl").find("\"lacked_memory\":true"), std::string::npos);
  const std::string last = format_printf("/step_%08d", 200);
  EXPECT_EQ(different_tensors(folder_ / "straight" + last, folder_ / "run" + last), Words{});
}

// A rank that is refused memory itself says so.
TEST_F(Injected, ARankThatIsRefusedMemorySaysSo) {
  const Words large = {"--hidden-size",   "1024", "--num-attention-heads",    "16", "--num-layers", "24",
                       "--save-interval", "1000", "--allow-memory-overcommit"};
  const Shell run = shell(folder_, concat("ulimit -v 4000000; espalier launch --nproc-per-node 1 --max-restarts 1",
                                          command_line(training("run", large))));
  EXPECT_NE(run.exit_code, 0);
  EXPECT_NE(run.errors.find("out of memory"), std::string::npos) << run.errors;
}

// Each write and sync of a checkpoint takes a long time: neither a hang nor a failure, and training goes on meanwhile.
TEST_F(Injected, ASlowDiskIsNoHangAndTrainingGoesOn) {
  if (!long_version()) GTEST_SKIP() << "takes a minute: --all";
  const Words more = {"--train-samples", "1600", "--lr-decay-samples", "1600", "--save-interval", "100"};
  const Shell fast = shell(folder_, "espalier launch --nproc-per-node 2" + command_line(training("fast", more)));
  ASSERT_EQ(fast.exit_code, 0) << fast.errors;
  setenv("LD_PRELOAD", ESPALIER_PLANTED_FAULTS, 1);
  setenv("PLANTED_SLOW_DISK", "700", 1);
  LauncherProcess run(folder_ / "log", Words{"--nproc-per-node", "2", "--hang-timeout", "5", "--alert-command",
                                             concat("cat >>", folder_ / "alerts")} +
                                           training("slow", more));
  const std::string saved = folder_ / "slow/step_00000100";
  // The first save is under way for seconds, while steps are made.
  size_t steps_during_save = 0;
  double seconds = 0;
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(wait_until(120, [&] {
    const size_t steps = num_records(folder_ / "slow");
    if (!std::filesystem::exists(saved) && steps > 100) {
      steps_during_save = std::max(steps_during_save, steps - 100);
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    return std::filesystem::exists(saved);
  })) << run.said();
  ASSERT_TRUE(has_ended(run));
  std::printf("%zu steps were made while the first checkpoint was written, in %.1f s\n", steps_during_save, seconds);
  EXPECT_EQ(run.exit_code(), 0) << run.said();
  EXPECT_GT(steps_during_save, 0u);
  EXPECT_EQ(run.said().find("hangs"), std::string::npos) << run.said();
  EXPECT_EQ(run.said().find("NOT SAVED"), std::string::npos) << run.said();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "alerts") &&
               read_file(folder_ / "alerts").find("hang") != std::string::npos);
  const std::string last = format_printf("/step_%08d", 200);
  EXPECT_EQ(different_tensors(folder_ / "fast" + last, folder_ / "slow" + last), Words{});
}

// As SaveFaults of the store does it within a process, here from outside: the k-th such call of the whole program on
// files of a checkpoint fails. Training goes on, and the next save works.
TEST_F(Injected, AFailingSystemCallOfASaveIsReportedAndTheNextSaveWorks) {
  if (shell(folder_, "strace -f -e trace=none true").exit_code != 0)
    GTEST_SKIP() << "strace is missing, or may not trace here";
  const std::string reference = folder_ / "reference";
  ASSERT_EQ(shell(folder_, "espalier" + command_line(training("reference", {"--save-interval", "1000"}))).exit_code, 0);
  const std::string last = format_printf("/step_%08d", 10);
  int num_reported = 0, num_tried = 0;
  for (const char* call : {"fsync", "rename,renameat,renameat2", "pwrite64"})
    for (const int which : {1, 2, 4}) {
      ++num_tried;
      const std::string name = concat("run", num_tried);
      // Only calls on files of a checkpoint: -P takes those whose descriptor or path is below one of these.
      const Shell run = shell(
          folder_, concat("strace -f -qq -o /dev/null -e trace=", call, " -e inject=", call, ":error=EIO:when=", which,
                          " espalier", command_line(training(name, {"--save-interval", "2"}))));
      const std::string events = std::filesystem::exists(folder_ / (name + "/events.jsonl"))
                                     ? read_file(folder_ / (name + "/events.jsonl"))
                                     : "";
      const bool is_reported = run.errors.find("Input/output error") != std::string::npos;
      num_reported += is_reported;
      EXPECT_TRUE(run.exit_code == 0 || is_reported) << call << " " << which << run.errors;
      if (run.exit_code != 0) continue;  // before training, or its last save: it says so
      EXPECT_EQ(different_tensors(reference + last, folder_ / name + last), Words{}) << call << " " << which;
      if (events.find("save failed") == std::string::npos) continue;
      EXPECT_NE(run.errors.find("NOT SAVED"), std::string::npos) << run.errors;
    }
  std::printf("%d calls failed, %d of them were reported; the others harmed nothing\n", num_tried, num_reported);
  EXPECT_GT(num_reported, 0);
}

}  // namespace injectors_test
}  // namespace espalier::test
