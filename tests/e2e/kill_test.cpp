// A run that is killed with SIGKILL again and again ends with the bits of one that was not.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <thread>

#include "store/run_folder.h"
#include "tests/e2e/run_fixture.h"
#include "tests/support/long_version.h"

namespace espalier::test {
namespace kill_test {

constexpr int64_t kStepsOfSave = 3;

int64_t num_steps() { return in_suite_or_all(60, 120); }

pid_t start(const Words& arguments) {
  const pid_t child = fork();
  if (child != 0) return child;
  Words words = Words{ESPALIER_PROGRAM, "train", "gpt"} + arguments;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  if (freopen("/dev/null", "w", stderr) == nullptr) _exit(1);
  execv(ESPALIER_PROGRAM, pointers.data());
  _exit(127);
}

TEST(Kill, AtAnyMomentTheRunGoesOnToTheSameBits) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 300, 5);
  const std::string samples = std::to_string(8 * num_steps());
  const Words run =
      tiny_run(folder / "data") +
      Words{
          "--bf16",          "--train-samples",           samples, "--lr-decay-samples", samples, "--num-threads", "1",
          "--save-interval", std::to_string(kStepsOfSave)};
  int status = 0;
  waitpid(start(run + Words{"--save", folder / "straight"}), &status, 0);
  ASSERT_EQ(status, 0);

  using Clock = std::chrono::steady_clock;
  std::mt19937 random(std::random_device{}());
  const auto below = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most)); };
  const auto start_again = [&] { return start(run + Words{"--save", folder / "killed", "--load", folder / "killed"}); };
  int kills = 0;
  // Waits for `is_due`; false where the run ends before.
  const auto kill_when = [&](pid_t child, const auto& is_due) {
    while (!is_due()) {
      if (waitpid(child, &status, WNOHANG) == child) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    ++kills;
    return true;
  };
  // Twice soon after a checkpoint, so however fast the machine is at the time, and twice at a moment that may be before
  // the first step. Then to the end.
  bool ended = false;
  int64_t step = 0;
  for (int round = 0; round < 2 && !ended; ++round) {
    step += kStepsOfSave * (1 + below(num_steps() / 9));
    const std::string saved = folder / ("killed/" + store::step_folder_name(step));
    const auto begin = Clock::now();
    const auto pause = std::chrono::milliseconds(below(50));
    Clock::time_point due = Clock::time_point::max();
    ended = !kill_when(start_again(), [&] {
      if (due == Clock::time_point::max() && std::filesystem::exists(saved)) due = Clock::now() + pause;
      return Clock::now() >= due;
    });
    const auto half = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin) / 2;
    const auto soon = Clock::now() + std::chrono::milliseconds(below(half.count() + 1));
    if (!ended) ended = !kill_when(start_again(), [&] { return Clock::now() >= soon; });
  }
  if (!ended) waitpid(start_again(), &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_GE(kills, 2);
  EXPECT_EQ(step_records(folder / "killed"), step_records(folder / "straight")) << kills << " kills";
  const std::string last = "/" + store::step_folder_name(num_steps());
  EXPECT_EQ(different_tensors(folder / "straight" + last, folder / "killed" + last), Words{});
}

}  // namespace kill_test
}  // namespace espalier::test
