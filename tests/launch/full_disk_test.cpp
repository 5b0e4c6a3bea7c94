// A disk without room, without inodes, or beyond a quota, under a run: training goes on, says so, and saves again when
// it can. The file systems are real ones of a few MiB where this machine lets a test mount them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace full_disk_test {

class FullDiskUnderARun : public testing::Test {
 protected:
  void SetUp() override {
    write_token_files(folder_ / "data", 300, 5);
    std::filesystem::create_directories(folder_ / "disk");
  }
  // A run that saves into `disk` until that is full, and does so again after `makes_room`. `environment`: variables.
  Shell run(const std::string& mounts, const std::string& environment, const std::string& fills,
            const std::string& makes_room) const {
    Words words =
        tiny_run(folder_ / "data") + Words{"--num-threads", "1",      "--save-interval", "4",      "--train-samples",
                                           "8000000",       "--save", "disk/run",        "--load", "disk/run"};
    for (std::string& word : words)
      if (word.starts_with("tests/")) word = std::filesystem::absolute(word);
    const std::string script = concat(kAwait, "cd ", shell_word(folder_.path()), "\n", mounts, "\n", environment,
                                      " espalier train gpt", command_line(words), R"( 2>log & run=$!
      saved() { ls -d disk/run/step_* 2>/dev/null | grep -v -e partial -e removing | tail -1; }
      await [ -e disk/run/events.jsonl ]
      )",
                                      fills, R"(
      # It goes on: a later save fails as well.
      failures() { grep -c 'NOT SAVED' log; }
      twice() { [ $(failures) -ge 2 ]; }; await twice
      newest=$(saved)
      )",
                                      makes_room, R"(
      again() { [[ $(saved) > $newest ]]; }; await again
      kill $run; wait $run; echo "exit code $?"
      espalier checkpoint verify --all disk/run 2>/dev/null | grep -v -c whole
      cp -r disk/run/*.jsonl .; grep -m 1 'NOT SAVED' log; basename $(saved) | sed 's/step_0*//')");
    return shell(folder_, concat(mounts.empty() ? "" : "unshare -m ", "bash -c ", shell_word(script)));
  }
  void expect_to_go_on(const Shell& shell, const std::string& cause) const {
    const std::string log = std::filesystem::exists(folder_ / "log") ? read_file(folder_ / "log") : "";
    EXPECT_TRUE(shell.output.starts_with("exit code 0\n0\n")) << shell.output << shell.errors << log;
    EXPECT_NE(shell.output.find(cause), std::string::npos) << shell.output;
    // Every step was recorded, once, although nothing could be written meanwhile.
    const auto steps = step_records(folder_.path());
    for (size_t at = 0; at < steps.size(); ++at) ASSERT_EQ(steps[at].at("step"), at + 1);
    // And so was each save that failed.
    size_t num_said = 0, num_recorded = 0;
    for (size_t at = log.find("NOT SAVED"); at != std::string::npos; at = log.find("NOT SAVED", at + 1)) ++num_said;
    for (const std::string& line : split(strip(read_file(folder_ / "events.jsonl")), '\n'))
      num_recorded += nlohmann::json::parse(line).at("event") == "save failed";
    EXPECT_GE(num_said, 2u);
    EXPECT_EQ(num_recorded, num_said) << log;
    const std::string last = shell.output.substr(shell.output.find_last_of('\n', shell.output.size() - 2) + 1);
    EXPECT_EQ(steps.size(), std::strtoull(last.c_str(), nullptr, 10));
  }
  bool can_mount() const { return shell(folder_, "unshare -m mount -t tmpfs none " + folder_ / "disk").exit_code == 0; }

  TemporaryFolder folder_;
};

TEST_F(FullDiskUnderARun, NoRoomIsLeft) {
  if (!can_mount()) GTEST_SKIP() << "no tmpfs can be mounted here";
  expect_to_go_on(
      run("mount -t tmpfs -o size=16m none disk", "", "", "rm -r $(ls -d disk/run/step_*[0-9] | head -n -1)"),
      "no room for checkpoint");
}

TEST_F(FullDiskUnderARun, NoInodeIsLeft) {
  if (!can_mount()) GTEST_SKIP() << "no tmpfs can be mounted here";
  expect_to_go_on(run("mount -t tmpfs -o size=512m,nr_inodes=120 none disk", "", "",
                      "rm -r $(ls -d disk/run/step_*[0-9] | head -n -1)"),
                  "No space left on device");
}

TEST_F(FullDiskUnderARun, AQuotaIsUsedUp) {
  expect_to_go_on(run("", concat("FULL_QUOTA=$PWD/full FULL_QUOTA_OF=$PWD/disk LD_PRELOAD=", ESPALIER_FULL_QUOTA),
                      "has_saved() { [ $(saved) ]; }; await has_saved; touch full", "rm full"),
                  "Disk quota exceeded");
}

}  // namespace full_disk_test
}  // namespace espalier::test
