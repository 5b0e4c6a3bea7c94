#include "launch/snapshot_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace espalier::launch {
namespace snapshot_memory_test {

using Steps = std::vector<int64_t>;

constexpr int64_t kBytes = 10'033;

void keep(SnapshotSlots& slots, int64_t step) {
  std::memset(slots.begin(), static_cast<int>(step), kBytes);
  slots.finish({.step = step, .identity = 7, .checksum = 9, .text = "of " + std::to_string(step)});
}

Steps steps_of(const SnapshotSlots& slots) {
  Steps steps;
  for (const SnapshotHead& head : slots.heads()) steps.push_back(head.step);
  return steps;
}

bool holds(const SnapshotSlots& slots, int64_t step) {
  const uint8_t* const data = slots.data(step);
  for (int64_t at = 0; at < kBytes; ++at)
    if (data[at] != step) return false;
  return true;
}

// Runs `action` in a process of its own, which then is killed.
template <class Action>
void in_killed_process(const Action& action) {
  const pid_t child = fork();
  if (child == 0) {
    action();
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST(SnapshotMemory, HoldsTheLastTwoCopiesOfAProcessThatWasKilled) {
  const SnapshotMemory memory(3);
  in_killed_process([&] {
    SnapshotSlots slots(memory.descriptor(), 2);
    slots.reserve(kBytes);
    for (int64_t step = 1; step <= 7; ++step) keep(slots, step);
  });
  SnapshotSlots slots(memory.descriptor(), 2), other(memory.descriptor(), 1);
  slots.reserve(kBytes), other.reserve(kBytes);
  EXPECT_EQ(steps_of(slots), (Steps{7, 6}));
  EXPECT_TRUE(holds(slots, 7) && holds(slots, 6));
  EXPECT_EQ(slots.heads()[0].text, "of 7");
  EXPECT_EQ(slots.heads()[0].identity, 7u);
  EXPECT_EQ(slots.heads()[0].checksum, 9u);
  EXPECT_EQ(steps_of(other), Steps{});
}

TEST(SnapshotMemory, ADeathInTheMiddleOfACopyLeavesTheOneBefore) {
  const SnapshotMemory memory(1);
  in_killed_process([&] {
    SnapshotSlots slots(memory.descriptor(), 0);
    slots.reserve(kBytes);
    for (int64_t step = 1; step <= 4; ++step) keep(slots, step);
    std::memset(slots.begin(), 0xff, kBytes / 2);
  });
  SnapshotSlots slots(memory.descriptor(), 0);
  slots.reserve(kBytes);
  EXPECT_EQ(steps_of(slots), Steps{4});
  EXPECT_TRUE(holds(slots, 4));
}

// Ranks agree on a step that all have; the copy of a later one must not be taken for one of this attempt, and the next
// is not written over the one that training went on from.
TEST(SnapshotMemory, TheCopyThatARankGoesOnFromIsTheLastToBeOverwritten) {
  const SnapshotMemory memory(1);
  SnapshotSlots slots(memory.descriptor(), 0);
  slots.reserve(kBytes);
  for (int64_t step = 1; step <= 6; ++step) keep(slots, step);
  slots.go_on_from(5);
  EXPECT_EQ(steps_of(slots), Steps{5});
  slots.begin();
  EXPECT_EQ(steps_of(slots), Steps{5});
  slots.finish({.step = 6, .identity = 7, .checksum = 9, .text = ""});
  EXPECT_EQ(steps_of(slots), (Steps{6, 5}));
  slots.go_on_from(6);
  EXPECT_EQ(steps_of(slots), (Steps{6, 5}));
  slots.go_on_from(0);
  EXPECT_EQ(steps_of(slots), Steps{});
}

TEST(SnapshotMemory, IsClearedByTheLauncherAndTakesUpWhatIsNeeded) {
  const SnapshotMemory memory(2);
  SnapshotSlots first(memory.descriptor(), 0), second(memory.descriptor(), 1);
  const auto used_bytes = [&] {
    struct stat status = {};
    EXPECT_EQ(fstat(memory.descriptor(), &status), 0);
    return status.st_blocks * 512;
  };
  first.reserve(int64_t{8} << 20), second.reserve(kBytes);
  keep(first, 1), keep(second, 1);
  EXPECT_GE(used_bytes(), int64_t{16} << 20);
  memory.clear();
  EXPECT_EQ(steps_of(first), Steps{});
  EXPECT_EQ(steps_of(second), Steps{});
  first.reserve(kBytes);
  EXPECT_LT(used_bytes(), int64_t{4} << 20) << "what a larger copy left";
}

TEST(SnapshotMemory, ACopyThatDoesNotFitIsRefused) {
  const SnapshotMemory memory(1);
  SnapshotSlots slots(memory.descriptor(), 0);
  try {
    slots.reserve(int64_t{1} << 39);
    FAIL() << "half a terabyte";
  } catch (const std::exception& error) {
    EXPECT_NE(
        std::string(error.what()).find("two copies of this rank's state need 1.00 TiB of memory, and this machine"),
        std::string::npos)
        << error.what();
  }
}

}  // namespace snapshot_memory_test
}  // namespace espalier::launch
