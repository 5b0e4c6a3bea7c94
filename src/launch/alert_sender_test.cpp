#include "launch/alert_sender.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/shell.h"

namespace espalier::launch {
namespace alert_sender_test {

namespace fs = std::filesystem;

class AlertSenders : public testing::Test {
 protected:
  AlertSenders() { fs::create_directories(folder_); }
  ~AlertSenders() override { fs::remove_all(folder_); }
  std::string taken() const { return fs::exists(folder_ / "taken") ? read_file(folder_ / "taken") : ""; }

  const fs::path folder_ = fs::temp_directory_path() / concat("alert_sender_", ::getpid());
  const std::string take_ = concat("cat >>", shell_word((folder_ / "taken").string()));
};

TEST_F(AlertSenders, GiveEachAlertInOrderAndWholeWhateverItHolds) {
  const std::string odd = R"({"detail": "it's \"$HOME\" `ls` %s \\ ; é"})";
  {
    AlertSender sender({.command = take_});
    for (const std::string& alert : {std::string("1"), odd, std::string("3")}) sender.send(alert);
  }
  EXPECT_EQ(taken(), "1\n" + odd + "\n3\n");
}

TEST_F(AlertSenders, TryAgainAndThenTellWhatWasNotTaken) {
  std::vector<std::string> lost;
  {
    AlertSender sender(
        {.command = concat("cd ", shell_word(folder_.string()), "; echo x >>tries; cat >last; exit 7"),
         .pauses_seconds = {0.01, 0.02},
         .on_failure = [&](const std::string& alert, const std::string& why) { lost.push_back(alert + ": " + why); }});
    sender.send("fire");
  }
  EXPECT_EQ(lost, std::vector<std::string>{"fire: exit code 7"});
  EXPECT_EQ(read_file(folder_ / "tries"), "x\nx\nx\n");
  EXPECT_EQ(read_file(folder_ / "last"), "fire\n");
}

TEST_F(AlertSenders, EndACommandThatDoesNotEndAndWhatItStarted) {
  std::vector<std::string> lost;
  std::atomic<bool> has_lost = false;
  const auto start = std::chrono::steady_clock::now();
  {
    AlertSender sender({.command = "sleep 1000 & sleep 1000",
                        .pauses_seconds = {},
                        .timeout_seconds = 0.2,
                        .on_failure = [&](const std::string&, const std::string& why) {
                          lost.push_back(why);
                          has_lost = true;
                        }});
    sender.send("fire");
    while (!has_lost) ::usleep(1000);
  }
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_TRUE(lost[0].starts_with("it had not ended after ")) << lost[0];
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(100));
}

}  // namespace alert_sender_test
}  // namespace espalier::launch
