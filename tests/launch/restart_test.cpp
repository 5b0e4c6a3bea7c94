// One rank killed at random moments: all stop within seconds, the culprit is named, and with restarts the run continues
// from its newest checkpoint to the bits of one that was left alone.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "base/format.h"
#include "tests/launch/launch_fixture.h"
#include "tests/launch/launcher_process.h"

namespace espalier::test {
namespace restart_test {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

// What a file holds from `begin` on. Files of a long run are not read again and again from their beginning: whoever
// waits would take the processor from those that he waits for.
std::string rest_of(const std::string& path, std::streamoff begin) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(begin);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The step of the last whole record; 0 where there is none.
int64_t last_step(const std::string& run_folder) {
  constexpr std::streamoff kLongerThanARecord = 1 << 14;
  const std::string path = run_folder + "/metrics.jsonl";
  std::error_code none;
  const auto bytes = static_cast<std::streamoff>(fs::file_size(path, none));
  if (none) return 0;
  std::string text = rest_of(path, std::max<std::streamoff>(0, bytes - kLongerThanARecord));
  text.erase(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n'));
  const size_t begin = text.rfind("{\"step\":");
  return begin == std::string::npos ? 0 : nlohmann::json::parse(text.substr(begin)).at("step").get<int64_t>();
}

constexpr int64_t kRanks = 2;
constexpr const char* kVerdict = "failed (signal 9, SIGKILL); starting ";

// A run and the same with a rank killed again and again, until both end; whether their bits are equal is left to see.
class RandomKills {
 public:
  RandomKills(const TemporaryFolder& folder, int kills, const Words& flags) : folder_(folder), kills_(kills) {
    write_token_files(folder / "data", 300, 5);
    const std::string samples = std::to_string(8 * 12 * (kills_ + 1));
    run_ = Words{"train", "gpt"} + tiny_run(folder / "data") +
           Words{"--train-samples", samples, "--lr-decay-samples", samples,
                 "--num-threads",   "1",     "--eval-interval",    "100000"} +
           flags;
  }

  void let_alone() {
    LauncherProcess straight(folder_ / "straight.log", launch_ + run_ + Words{"--save", folder_ / "straight"});
    ASSERT_TRUE(wait_until(300, [&] { return !straight.runs(); }));
    ASSERT_EQ(straight.exit_code(), 0) << straight.said();
  }

  // `after_kill`: when the others have stopped and nothing has started again, with what was said since the kill before;
  // and once at the end.
  template <class AfterKill>
  void kill_ranks(const AfterKill& after_kill) {
    std::mt19937 random(std::random_device{}());
    LauncherProcess killed(folder_ / "killed.log",
                           launch_ + Words{"--max-restarts", std::to_string(kills_)} + run_ +
                               Words{"--save", folder_ / "killed", "--load", folder_ / "killed"});
    std::streamoff heard = 0;
    for (int number = 0; number < kills_; ++number) {
      std::map<int64_t, pid_t> ranks;
      ASSERT_TRUE(wait_until(60, [&] { return (ranks = killed.ranks()).size() == kRanks || !killed.runs(); }));
      ASSERT_TRUE(killed.runs()) << number << " kills only\n" << killed.said();
      // After some steps, or a moment after the start, whatever comes first.
      const int64_t target = last_step(folder_ / "killed") + static_cast<int64_t>(random() % 12);
      const double patience = number % 3 == 0 ? 0.001 * static_cast<double>(random() % 1500) : 60;
      wait_until(patience, [&] { return last_step(folder_ / "killed") >= target || !killed.runs(); });
      ASSERT_TRUE(killed.runs()) << killed.said();
      const int64_t victim = static_cast<int64_t>(random() % kRanks);
      const auto start = Clock::now();
      kill(ranks.at(victim), SIGKILL);
      const std::string named = concat("rank ", victim, " on ");
      std::string text;
      const auto is_named = [&] {
        text = rest_of(folder_ / "killed.log", heard);
        const size_t verdict = text.find(kVerdict);
        return verdict != std::string::npos && text.find('\n', verdict) != std::string::npos;
      };
      ASSERT_TRUE(wait_until(20, is_named)) << killed.said();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      slowest_seconds_ = std::max(slowest_seconds_, seconds);
      num_late_ += seconds > 1;
      const size_t verdict = text.find(kVerdict), line = text.rfind('\n', verdict) + 1;
      EXPECT_EQ(text.compare(line, named.size(), named), 0) << text.substr(line);
      text.resize(text.find('\n', verdict) + 1);
      heard += static_cast<std::streamoff>(text.size());
      EXPECT_EQ(count(text, kVerdict), 1u) << text;
      after_kill(text);
    }
    ASSERT_TRUE(wait_until(300, [&] { return !killed.runs(); })) << killed.said();
    ASSERT_EQ(killed.exit_code(), 0) << killed.said();
    after_kill(rest_of(folder_ / "killed.log", heard));
  }

  void expect_equal() const {
    EXPECT_EQ(step_records(folder_ / "killed"), step_records(folder_ / "straight"));
    const std::string last = format_printf("/step_%08d", 12 * (kills_ + 1));
    EXPECT_EQ(different_tensors(folder_ / "straight" + last, folder_ / "killed" + last), Words{});
  }

  int kills() const { return kills_; }
  double slowest_seconds() const { return slowest_seconds_; }
  int num_late() const { return num_late_; }  // that took more than a second until the others had stopped

 private:
  const TemporaryFolder& folder_;
  const int kills_;
  Words run_;
  const Words launch_ = {"--nproc-per-node", std::to_string(kRanks), "--shutdown-timeout", "10"};
  double slowest_seconds_ = 0;
  int num_late_ = 0;
};

TEST(Restart, ARunWhoseRanksAreKilledEndsWithTheSameBits) {
  const TemporaryFolder folder;
  RandomKills run(folder, in_suite_or_all(6, 50), {"--save-interval", "3"});
  ASSERT_NO_FATAL_FAILURE(run.let_alone());
  ASSERT_NO_FATAL_FAILURE(run.kill_ranks([](const std::string&) {}));
  EXPECT_LT(run.slowest_seconds(), 10);
  std::printf("%d kills; the others stopped within %.2f s\n", run.kills(), run.slowest_seconds());
  run.expect_equal();
}

// Nothing is on disk before the end: without the copies in memory each restart would begin at step 0.
TEST(Restart, FromMemoryARunWhoseRanksAreKilledLosesAStepAtMostEachTime) {
  const TemporaryFolder folder;
  RandomKills run(folder, in_suite_or_all(40, 1000),
                  {"--save-interval", "100000", "--non-persistent-save-interval", "1"});
  ASSERT_NO_FATAL_FAILURE(run.let_alone());
  const std::string mark = "going on from the copy of the state at iteration ";
  int64_t made = 0, most_lost = 0;
  int num_restarts = 0;
  const auto look = [&](const std::string& text) {
    if (const size_t found = text.rfind(mark); found != std::string::npos) {
      most_lost = std::max<int64_t>(most_lost, made - std::stoll(text.substr(found + mark.size())));
      made = 0;
      ++num_restarts;
    }
    made = std::max(made, last_step(folder / "killed"));
  };
  ASSERT_NO_FATAL_FAILURE(run.kill_ranks(look));
  EXPECT_LE(most_lost, 1);
  EXPECT_GT(num_restarts, run.kills() / 2) << "too few steps between kills to mean anything";
  EXPECT_EQ(run.num_late(), 0) << "the slowest took " << run.slowest_seconds() << " s";
  std::printf("%d kills; the others stopped within %.2f s; at most %lld steps lost\n", run.kills(),
              run.slowest_seconds(), static_cast<long long>(most_lost));
  run.expect_equal();
}

// Its newest checkpoint damaged, a run that is started by hand stops and names it; one whose ranks a launcher starts
// again continues from the one before, to the bits of a run that never met it.
TEST(Restart, ADamagedNewestCheckpointIsSetAsideByARestartAndNeverByHand) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 300, 5);
  const Words run = Words{"train", "gpt"} + tiny_run(folder / "data") +
                    Words{"--train-samples", "48", "--lr-decay-samples", "48",    "--save-interval", "2",
                          "--num-threads",   "1",  "--eval-interval",    "100000"};
  const Words saved = {"--save", folder / "run", "--load", folder / "run"};
  const Words two = {"--nproc-per-node", "2"};
  ASSERT_EQ(
      shell(folder, "espalier launch" + command_line(two + run + saved + Words{"--exit-interval", "4"})).exit_code, 0);
  const fs::path newest = fs::path(folder / "run") / "step_00000004";
  const fs::path file = newest / "weights-00001.safetensors";
  std::string content = read_file(file);
  content.back() ^= 1;
  std::ofstream(file, std::ios::binary) << content;

  const Shell by_hand = shell(folder, "espalier launch" + command_line(two + run + saved));
  EXPECT_EQ(by_hand.exit_code, 65) << by_hand.errors;
  EXPECT_NE(by_hand.errors.find("weights-00001.safetensors: tensor 'layers.1."), std::string::npos) << by_hand.errors;
  EXPECT_NE(by_hand.errors.find("Other complete steps: 2"), std::string::npos) << by_hand.errors;
  EXPECT_TRUE(fs::exists(newest));

  const Shell again = shell(folder, "espalier launch --max-restarts 1" + command_line(two + run + saved));
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_NE(again.errors.find("step_00000004 cannot be loaded and is now step_00000004.damaged. The run goes back to "
                              "step_00000002: steps 3 to 4 are trained again"),
            std::string::npos)
      << again.errors;
  EXPECT_EQ(read_file(fs::path(folder / "run") / "step_00000004.damaged" / file.filename()), content)
      << "nothing is lost";
  ASSERT_EQ(shell(folder, "espalier launch" + command_line(two + run + Words{"--save", folder / "straight"})).exit_code,
            0);
  EXPECT_EQ(different_tensors(folder / "straight/step_00000006", folder / "run/step_00000006"), Words{});
}

TEST(Restart, AStepAskedForByHandIsGoneBackToOnce) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 300, 5);
  const std::string run =
      "espalier train gpt" +
      command_line(tiny_run(folder / "data") + Words{"--train-samples", "64", "--lr-decay-samples", "64",
                                                     "--save-interval", "2", "--eval-interval", "100000", "--save",
                                                     folder / "run", "--load", folder / "run"});
  ASSERT_EQ(shell(folder, run + " --exit-interval 4").exit_code, 0);
  const Shell first = shell(folder, run + " --ckpt-step 2 --exit-interval 6");
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_NE(first.errors.find("at iteration 2"), std::string::npos) << first.errors;
  const Shell second = shell(folder, run + " --ckpt-step 2 --exit-interval 8");
  ASSERT_EQ(second.exit_code, 0) << second.errors;
  EXPECT_NE(second.errors.find("continues from its newest checkpoint, step_00000006"), std::string::npos)
      << second.errors;
  EXPECT_NE(second.errors.find("at iteration 6"), std::string::npos) << second.errors;
  EXPECT_EQ(num_records(folder / "run"), 8u);
}

// The folder of --load is not that of --save: killed before the first save and after it, and started again by hand, the
// run goes on in its own folder, and a finetuning does not begin once more.
class FromAnotherFolder : public testing::TestWithParam<std::string> {};

TEST_P(FromAnotherFolder, ARunGoesOnInItsOwn) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 300, 5);
  const Words train = Words{"train", "gpt"} + tiny_run(folder / "data") +
                      split_blanks("--train-samples 800 --lr-decay-samples 800 --num-threads 1 --eval-interval 100000"),
              begin = Words{"--load", folder / "archive", "--save-interval", "30"} + split_blanks(GetParam());
  const Shell archive = shell(
      folder, "espalier" + command_line(train) + " --save-interval 2 --exit-interval 4 --save " + (folder / "archive"));
  ASSERT_EQ(archive.exit_code, 0) << archive.errors;
  const Words two = {"--nproc-per-node", "2", "--max-restarts", "9"};
  const Words straight = two + train + begin + Words{"--save", folder / "straight"},
              killed = two + train + begin + Words{"--save", folder / "killed"};
  const Shell undisturbed = shell(folder, "espalier launch" + command_line(straight));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.errors;
  const auto kill_first_rank = [&](LauncherProcess& run, const std::string& file) {
    ASSERT_TRUE(wait_until(120, [&] { return fs::exists((folder / "killed") + file) || !run.runs(); }));
    std::map<int64_t, pid_t> ranks;
    ASSERT_TRUE(wait_until(60, [&] { return (ranks = run.ranks()).size() == 2 || !run.runs(); }));
    ASSERT_TRUE(run.runs()) << run.said();
    kill(ranks.at(0), SIGKILL);
  };
  {
    LauncherProcess run(folder / "first.log", killed);
    kill_first_rank(run, "/metrics.jsonl");
    kill_first_rank(run, "/step_00000030/manifest.json");
    // The kill may have been in the middle of the save of step 60.
    ASSERT_TRUE(wait_until(120, [&] {
      return fs::exists(folder / "killed/step_00000060/manifest.json") ||
             fs::exists(folder / "killed/step_00000090/manifest.json");
    })) << run.said();
    EXPECT_NE(run.said().find("continues from its own newest checkpoint"), std::string::npos) << run.said();
    run.end(SIGKILL);
  }
  const Shell again = shell(folder, "espalier launch" + command_line(killed));
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_EQ(step_records(folder / "killed"), step_records(folder / "straight"));
  EXPECT_EQ(different_tensors(folder / "straight/step_00000100", folder / "killed/step_00000100"), Words{});
  const Shell other = shell(folder, "espalier launch" + command_line(two + train) + " --save-interval 30 --load " +
                                        (folder / "straight") + " --save " + (folder / "killed"));
  EXPECT_EQ(other.exit_code, 73) << other.errors;
  EXPECT_NE(other.errors.find("already holds checkpoints up to step_00000100"), std::string::npos) << other.errors;
}

INSTANTIATE_TEST_SUITE_P(Restart, FromAnotherFolder,
                         testing::ValuesIn(in_suite_or_all<std::vector<std::string>>(
                             {"", "--ckpt-step 2", "--non-persistent-save-interval 1 --finetune"},
                             {"", "--ckpt-step 2", "--finetune", "--no-load-optim",
                              "--non-persistent-save-interval 1 --finetune"})));

// A finetuning that finds nothing in its folder draws its weights; what it saves there afterwards is its own.
TEST(Restart, AFinetuningInOneFolderGoesOnAfterAFault) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 300, 5);
  const Words two = {"--nproc-per-node", "2", "--max-restarts", "9"},
              train = Words{"train", "gpt"} + tiny_run(folder / "data") +
                      split_blanks(
                          "--train-samples 1600 --lr-decay-samples 1600 --num-threads 1 --eval-interval "
                          "100000 --save-interval 40"),
              tune = two + train + Words{"--finetune", "--load", folder / "tuned", "--save", folder / "tuned"};
  const Shell straight =
      shell(folder, "espalier launch" + command_line(two + train + Words{"--save", folder / "straight"}));
  ASSERT_EQ(straight.exit_code, 0) << straight.errors;
  {
    LauncherProcess run(folder / "log", tune);
    ASSERT_TRUE(wait_until(120, [&] { return !saved_steps(folder / "tuned").empty() || !run.runs(); })) << run.said();
    const auto ranks = run.ranks();
    ASSERT_EQ(ranks.size(), 2u) << run.said();
    kill(ranks.at(0), SIGKILL);
    const size_t before = saved_steps(folder / "tuned").size();
    ASSERT_TRUE(wait_until(120, [&] { return saved_steps(folder / "tuned").size() > before + 1 || !run.runs(); }))
        << run.said();
    EXPECT_NE(run.said().find("continues from its own newest checkpoint"), std::string::npos) << run.said();
    run.end(SIGKILL);
  }
  const Shell again = shell(folder, "espalier launch" + command_line(tune));
  ASSERT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_EQ(step_records(folder / "tuned"), step_records(folder / "straight"));
  EXPECT_EQ(different_tensors(folder / "straight/step_00000200", folder / "tuned/step_00000200"), Words{});
}

// Another job trains into the folder: that is said once, and nobody tries again.
TEST(Restart, AFolderThatIsInUseEndsAStartAtOnce) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 300, 5);
  const Words run = Words{"--nproc-per-node", "2", "--max-restarts", "5"},
              train =
                  Words{"train", "gpt"} + tiny_run(folder / "data") +
                  split_blanks("--train-samples 8000000 --lr-decay-samples 8000000 --save-interval 100000 --load ") +
                  Words{folder / "run", "--save", folder / "run"};
  LauncherProcess first(folder / "first.log", run + train);
  ASSERT_TRUE(wait_until(120, [&] { return num_records(folder / "run") > 0 || !first.runs(); })) << first.said();
  const Shell second = shell(
      folder, concat("espalier launch --alert-command 'cat >>", folder / "alerts", "'", command_line(run + train)));
  EXPECT_EQ(second.exit_code, 73) << second.errors;
  EXPECT_EQ(count(second.errors, "; starting "), 0u) << second.errors;
  EXPECT_EQ(second.errors.find("the same fault came"), std::string::npos) << second.errors;
  const std::string alerts = read_file(folder / "alerts");
  EXPECT_EQ(count(alerts, "\"incident\":\"failure\""), 1u) << alerts;
  EXPECT_NE(alerts.find("this start is refused, and nothing has been trained by it"), std::string::npos) << alerts;
  EXPECT_TRUE(first.runs()) << "undisturbed";
}

// Weights that are not finite after the first step: whoever tries again gets there again.
TEST(Restart, TheSameErrorAtTheSameStepEndsTheRunWithAPageOfItsCause) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = Words{"train", "gpt"} + tiny_run(folder / "data") +
                    Words{"--clip-grad",
                          "0",
                          "--lr",
                          "1e30",
                          "--min-lr",
                          "1e29",
                          "--num-threads",
                          "1",
                          "--save-interval",
                          "1",
                          "--non-persistent-save-interval",
                          "1",
                          "--save",
                          folder / "run",
                          "--load",
                          folder / "run"};
  const Shell result = shell(folder, "espalier launch --nproc-per-node 2 --max-restarts 20" + command_line(run));
  EXPECT_EQ(result.exit_code, 17) << result.errors;
  EXPECT_EQ(count(result.errors, "starting all ranks again"), 1u) << result.errors;
  EXPECT_NE(result.errors.find("The run has ended because the same fault came 2 times"), std::string::npos)
      << result.errors;
  EXPECT_NE(result.errors.find("the same place: phase "), std::string::npos) << result.errors;
  fs::path page;
  for (const auto& entry : fs::directory_iterator(folder / "run"))
    if (entry.path().filename().string().starts_with("cause_")) page = entry.path();
  ASSERT_FALSE(page.empty());
  const std::string text = read_file(page);
  EXPECT_NE(text.find("holds NaN or infinity"), std::string::npos) << text;
  EXPECT_NE(text.find("espalier replay --load "), std::string::npos) << text;
}

TEST(Restart, WithoutRestartsTheCulpritIsTheRootCauseAndItsCodeIsReturned) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  LauncherProcess launch(folder / "log",
                         Words{"--nproc-per-node", "3", "--shutdown-timeout", "10", "train", "gpt"} +
                             tiny_run(folder / "data") +
                             Words{"--train-samples", "6000000", "--lr-decay-samples", "6000000", "--global-batch-size",
                                   "6", "--save", folder / "run", "--save-interval", "100000", "--num-threads", "1"});
  ASSERT_TRUE(wait_until(120, [&] { return num_records(folder / "run") > 2 || !launch.runs(); }));
  ASSERT_TRUE(launch.runs()) << launch.said();
  const std::map<int64_t, pid_t> ranks = launch.ranks();
  kill(ranks.at(1), SIGKILL);
  ASSERT_TRUE(wait_until(20, [&] { return !launch.runs(); })) << launch.said();
  EXPECT_EQ(launch.exit_code(), 137);
  const std::string text = launch.said(), cause = text.substr(std::min(text.size(), text.find("Root Cause")));
  EXPECT_NE(cause.find(concat("rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: ", ranks.at(1), ")  (SIGKILL)")),
            std::string::npos)
      << text;
}

}  // namespace restart_test
}  // namespace espalier::test
