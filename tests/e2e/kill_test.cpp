// A run that is killed with SIGKILL again and again ends with the bits of one that was not.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace kill_test {

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
  const Words run = tiny_run(folder / "data") + Words{"--bf16", "--train-samples", "960", "--lr-decay-samples",
                                                      "960",    "--num-threads",   "1",   "--save-interval",
                                                      "3"};
  int status = 0;
  const auto begin = std::chrono::steady_clock::now();
  waitpid(start(run + Words{"--save", folder / "straight"}), &status, 0);
  ASSERT_EQ(status, 0);

  const auto whole_run = std::chrono::steady_clock::now() - begin;
  std::mt19937 random(std::random_device{}());
  int kills = 0;
  for (bool ended = false; !ended;) {
    ASSERT_LT(kills, 100) << "the run does not get anywhere";
    const pid_t child = start(run + Words{"--save", folder / "killed", "--load", folder / "killed"});
    // A share of what the whole run takes, growing so that the run gets through in the end.
    const double share = 0.1 + 0.02 * kills + 0.3 * static_cast<double>(random() % 1000) / 1000;
    const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(whole_run * share);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!(ended = waitpid(child, &status, WNOHANG) == child) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (ended) break;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    ++kills;
  }
  ASSERT_EQ(status, 0);
  EXPECT_GE(kills, 2);
  EXPECT_EQ(step_records(folder / "killed"), step_records(folder / "straight")) << kills << " kills";
  EXPECT_EQ(different_tensors(folder / "straight/step_00000120", folder / "killed/step_00000120"), Words{});
}

}  // namespace kill_test
}  // namespace espalier::test
