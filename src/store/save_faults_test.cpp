// Every system call of a save fails, or the process dies there: what the disk then holds is the old checkpoint or the
// new one, what was reported is true, and the next save works.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "store/internal/test_folder.h"
#include "store/internal/test_system.h"
#include "store/prune.h"
#include "store/run_folder.h"
#include "store/step_reader.h"
#include "tests/support/long_version.h"

namespace espalier::store {
namespace save_faults_test {

namespace fs = std::filesystem;
using test::error_of;
using test::SmallCheckpoint;
using test::SystemCall;
using Lines = std::vector<std::string>;

constexpr int64_t kRows = 700;  // more than a page of each file

class SaveFaults : public test::TestFolder {
 protected:
  fs::path run() const { return folder_ / "run"; }
  fs::path step_folder(int64_t step) const { return run() / step_folder_name(step); }
  bool is_whole(int64_t step) const {
    return fs::exists(step_folder(step)) && verify_step(step_folder(step), 1, /*weights_only=*/false).empty();
  }
  std::vector<int64_t> complete_steps() const {
    std::vector<int64_t> steps;
    for (const StepEntry& entry : list_steps(run()).complete) steps.push_back(entry.step);
    return steps;
  }
  void save(int64_t step) const { SmallCheckpoint(static_cast<uint32_t>(step), kRows).save(run(), step); }

  // Call number `number` in this test's folder, from 1 on, is the one of which `what` decides.
  void at_call(int64_t number, const std::function<int(const SystemCall&)>& what) {
    count_ = 0;
    reached_ = "";
    test::system_calls().before = [this, number, what, root = folder_.string()](const SystemCall& call) {
      if (!call.path.starts_with(root) || ++count_ != number) return 0;
      reached_ = concat(call.name, " of ", call.path);
      return what(call);
    };
  }

  std::atomic<int64_t> count_ = 0;
  std::string reached_;
};

TEST_F(SaveFaults, AFailingCallLeavesTheOldCheckpointOrTheNewOneAndSaysWhich) {
  const test::SystemCallsScope scope;
  save(1);
  int64_t number = 1, num_failed = 0, num_saved = 0;
  // Each call once, with one of the errors by turns; with ESPALIER_TEST_ALL each with each of them.
  constexpr int kErrors[] = {EIO, ENOSPC, EDQUOT};
  const int64_t num_passes = espalier::test::in_suite_or_all(1, 3);
  for (int64_t pass = 0; pass < num_passes; ++pass)
    for (number = 1;; ++number) {
      const int error = kErrors[(pass + number) % 3];
      fs::remove_all(step_folder(2));
      at_call(number, [error](const SystemCall&) { return error; });
      testing::internal::CaptureStderr();
      const std::string said = error_of([&] { save(2); });
      test::system_calls() = {};
      const std::string warned = testing::internal::GetCapturedStderr();
      if (reached_.empty()) break;
      const std::string place = concat("call ", number, ", ", reached_, ": ", std::strerror(error), "; said: ", said);
      ASSERT_TRUE(is_whole(1)) << place;
      if (said == "no error") {
        ++num_saved;
        EXPECT_TRUE(is_whole(2)) << place << warned;
      } else {
        ++num_failed;
        EXPECT_FALSE(fs::exists(step_folder(2))) << place;
        EXPECT_NE(said.find(folder_.string()), std::string::npos) << "names no file: " << place;
        EXPECT_NE(said.find(std::strerror(error)), std::string::npos) << "names no cause: " << place;
        EXPECT_EQ(said.find("filesystem error"), std::string::npos) << place;
      }
      // Nothing is in the way of the next attempt, which leaves nothing behind.
      if (said != "no error") save(2);
      EXPECT_TRUE(is_whole(2)) << place;
      const RunListing listing = list_steps(run());
      EXPECT_EQ(listing.partial.size() + listing.superseded.size(), 0u) << place;
    }
  EXPECT_GE(number, 40) << "too few calls were seen";
  EXPECT_GE(num_failed, num_passes * 25);
  RecordProperty("failed", static_cast<int>(num_failed));
  RecordProperty("saved", static_cast<int>(num_saved));
}

TEST_F(SaveFaults, DyingAtACallLeavesTheOldCheckpointOrTheNewOne) {
  const test::SystemCallsScope scope;
  save(1);
  bool was_old = false, was_new = false;
  for (int64_t number = 1;; ++number) {
    fs::remove_all(step_folder(2));
    const pid_t child = fork();
    if (child == 0) {
      at_call(number, [](const SystemCall&) { return ::raise(SIGKILL); });
      save(2);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      EXPECT_GE(number, 40) << "too few calls were seen";
      break;
    }
    ASSERT_TRUE(is_whole(1)) << "call " << number;
    const std::vector<int64_t> complete = complete_steps();
    const bool is_new = complete == std::vector<int64_t>{1, 2};
    ASSERT_TRUE(is_new || complete == std::vector<int64_t>{1}) << "call " << number;
    (is_new ? was_new : was_old) = true;
    EXPECT_EQ(is_whole(2), is_new) << "call " << number;
    // The run starts again from what it finds.
    const std::optional<StepEntry> found = find_checkpoint(run(), std::nullopt, run());
    ASSERT_TRUE(found);
    prepare_save_folder(run(), found, found->step);
    if (!is_new) save(2);
    save(3);
    EXPECT_EQ(complete_steps(), (std::vector<int64_t>{1, 2, 3}));
    EXPECT_TRUE(is_whole(2) && is_whole(3)) << "call " << number;
    EXPECT_EQ(list_steps(run()).partial.size(), 0u);
    fs::remove_all(step_folder(3));
  }
  EXPECT_TRUE(was_old && was_new);
}

}  // namespace save_faults_test
}  // namespace espalier::store
