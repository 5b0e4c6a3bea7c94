#include "report/run_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

namespace espalier::report {
namespace {

namespace fs = std::filesystem;

class RunFolder : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(run_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((run_ / name).parent_path());
    write_file_atomically(run_ / name, text);
  }
  const fs::path folder_ = fs::temp_directory_path() / "espalier_run_reader_test", run_ = folder_ / "a";
};

const char* const kStart = "{\"time\": 1000.5, \"event\": \"start\", \"step\": 0, \"detail\": \"of 70 steps\"}\n";

TEST_F(RunFolder, OneThatMayNotBeReadIsNotTakenForAnother) {
  write("metrics.jsonl", "");
  fs::permissions(run_, fs::perms::none);
  const uid_t user = ::geteuid();
  constexpr uid_t kNobody = 65534;  // root may read everything
  if (user == 0) {
    ASSERT_EQ(::seteuid(kNobody), 0);
  }
  const std::string found = describe_no_run(run_);
  if (user == 0) {
    ASSERT_EQ(::seteuid(user), 0);
  }
  fs::permissions(run_, fs::perms::owner_all);
  EXPECT_EQ(found, "'" + run_.string() + "' cannot be read: Permission denied");
  EXPECT_EQ(describe_no_run(run_), "");
}

TEST_F(RunFolder, StatusFollowsFromTheLastEventAndTheLock) {
  const auto status = [&](const std::string& events) {
    write("events.jsonl", events);
    write(".lock", "process 1\n");
    return read_run(run_).status;
  };
  const std::string start = kStart;
  EXPECT_EQ(status(start + "{\"time\": 2, \"event\": \"end\", \"step\": 70, \"detail\": \"all steps done\"}\n"),
            RunStatus::kFinished);
  EXPECT_EQ(status(start + "{\"time\": 2, \"event\": \"stop\", \"step\": 7, \"detail\": \"SIGTERM\"}\n"),
            RunStatus::kStopped);
  EXPECT_EQ(status(start + "{\"time\": 2, \"event\": \"error\", \"step\": 7, \"detail\": \"disk\"}\n"),
            RunStatus::kFailed);
  EXPECT_EQ(status(start + "{\"time\": 2, \"event\": \"alert\", \"step\": 7, \"detail\": \"spike\"}\n"),
            RunStatus::kDied);
  EXPECT_EQ(status(start + "{\"time\": 2, \"event\": \"failure\", \"step\": -1, \"detail\": \"rank 1 failed\"}\n"),
            RunStatus::kFailed);
  EXPECT_EQ(status(""), RunStatus::kEmpty);
  EXPECT_EQ(status(start + "{\"time\": 2, \"event\": \"en"), RunStatus::kDied) << "a line that was cut off";
  const int lock = ::open((run_ / ".lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(read_run(run_).status, RunStatus::kRunning);
  EXPECT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0) << "reading has not taken it";
  ::close(lock);
  EXPECT_EQ(read_run(run_).status, RunStatus::kDied);
}

// As a launcher whose disk was full records a failure once the run that it has started again is through.
TEST_F(RunFolder, WhatWasWrittenLateIsReadInItsTime) {
  write("events.jsonl",
        "{\"time\": 9, \"event\": \"start\", \"step\": 0, \"detail\": \"\"}\n"
        "{\"time\": 3, \"event\": \"start\", \"step\": 4, \"detail\": \"by a clock that was set back\"}\n"
        "{\"time\": 8, \"event\": \"end\", \"step\": 70, \"detail\": \"all steps done\"}\n"
        "{\"time\": 2, \"event\": \"failure\", \"step\": -1, \"detail\": \"a restart follows\", \"late\": true}\n"
        "{\"time\": 2, \"event\": \"alerted\", \"step\": -1, \"detail\": \"\", \"late\": true}\n");
  write(".lock", "process 1\n");
  const report::Run run = read_run(run_);
  EXPECT_EQ(run.status, RunStatus::kFinished);
  std::vector<double> times;
  std::string names;
  for (const RunEvent& event : run.events) times.push_back(event.time), names += event.event + " ";
  EXPECT_EQ(names, "failure alerted start start end ");
  EXPECT_EQ(times, (std::vector<double>{2, 2, 9, 3, 8}));
}

TEST_F(RunFolder, OptionsEventsAndCheckpointsAreRead) {
  write("config.toml", "[training]\ntrain_samples = 700\nlr = 1e-3\n\n[data]\ndata_path = [\"a = b\"]\n");
  write("events.jsonl", kStart);
  write("step_00000010/manifest.json", "{}");
  write("step_00000020/manifest.json", "{}");
  write("step_00000030/weights", "");
  write("step_00000040.partial/manifest.json", "{}");
  const report::Run run = read_run(run_);  // Run alone is a function of the fixture
  EXPECT_EQ(run.options.at("data_path"), "[\"a = b\"]");
  EXPECT_EQ(run.options.at("lr"), "1e-3");
  EXPECT_EQ(run.num_steps, 70) << "as the run said, for --train-samples";
  EXPECT_EQ(run.checkpoints, (std::vector<int64_t>{10, 20}));
  ASSERT_EQ(run.events.size(), 1U);
  EXPECT_EQ(run.started, 1000.5);
}

TEST_F(RunFolder, RunsAreFoundTwoFoldersDownAndStepFoldersAreNone) {
  write("config.toml", "lr = 1\n");
  write("step_00000010/manifest.json", "{}");
  write("step_00000010/config.toml", "lr = 1\n");
  fs::create_directories(folder_ / "more/b/c/d");
  write_file_atomically(folder_ / "more/b/metrics.jsonl", "");
  write_file_atomically(folder_ / "more/b/c/d/metrics.jsonl", "");
  EXPECT_EQ(find_runs({folder_.string() + "/"}), (std::vector<fs::path>{run_, folder_ / "more/b"}));
  EXPECT_EQ(find_runs({run_.string(), run_.string()}), std::vector<fs::path>{run_});
  for (const fs::path& wrong : {folder_ / "none", run_ / "config.toml"}) EXPECT_THROW(find_runs({wrong}), UserError);
  for (const fs::path& wrong : {folder_ / "none", folder_ / "more", run_ / "step_00000010"})
    EXPECT_THROW(read_run(wrong), UserError) << wrong;
}

}  // namespace
}  // namespace espalier::report
