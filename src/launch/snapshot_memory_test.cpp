#include "launch/snapshot_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/hash.h"

namespace espalier::launch {
namespace snapshot_memory_test {

using Steps = std::vector<int64_t>;

constexpr int64_t kBytes = 10'033;

void keep(SnapshotSlots& slots, int64_t step) {
  const int slot = slots.slot_to_write();
  std::memset(slots.begin(slot), static_cast<int>(step), kBytes);
  slots.finish(slot,
               {.step = step, .bytes = kBytes, .identity = 7, .checksum = 9, .text = "of " + std::to_string(step)});
}

Steps steps_of(const SnapshotSlots& slots) {
  Steps steps;
  for (const SnapshotHead& head : slots.heads()) steps.push_back(head.step);
  return steps;
}

bool holds(const SnapshotSlots& slots, int64_t step) {
  for (const SnapshotHead& head : slots.heads()) {
    const uint8_t* const data = slots.data(head.slot);
    if (head.step == step) return std::all_of(data, data + kBytes, [&](uint8_t byte) { return byte == step; });
  }
  return false;
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

// Asked by who has not mapped it, as it does not know yet how large copies are.
TEST(SnapshotMemory, TellsWhetherThereIsACopyBeforeAnythingIsReserved) {
  const SnapshotMemory memory(2);
  const SnapshotSlots early(memory.descriptor(), 1), other(memory.descriptor(), 0);
  EXPECT_FALSE(early.hold_any());
  SnapshotSlots slots(memory.descriptor(), 1);
  slots.reserve(kBytes);
  EXPECT_FALSE(early.hold_any());
  slots.begin(0);
  EXPECT_FALSE(early.hold_any()) << "one that is not finished";
  keep(slots, 1);
  EXPECT_TRUE(early.hold_any());
  EXPECT_FALSE(other.hold_any());
  EXPECT_TRUE(memory.hold_any());
  slots.forget_after(0);
  EXPECT_FALSE(early.hold_any());
  EXPECT_FALSE(memory.hold_any());
  SnapshotSlots of_peer(memory.descriptor(), 0, SlotsOf::kPeer);
  of_peer.reserve(kBytes);
  keep(of_peer, 1);
  EXPECT_TRUE(memory.hold_any());
  memory.clear();
  EXPECT_FALSE(memory.hold_any());
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
    std::memset(slots.begin(slots.slot_to_write()), 0xff, kBytes / 2);
  });
  SnapshotSlots slots(memory.descriptor(), 0);
  slots.reserve(kBytes);
  EXPECT_EQ(steps_of(slots), Steps{4});
  EXPECT_TRUE(holds(slots, 4));
}

// Ranks agree on a step that all have; the copy of a later one must not be taken for one of this attempt.
TEST(SnapshotMemory, CopiesOfLaterStepsAreForgotten) {
  const SnapshotMemory memory(1);
  SnapshotSlots slots(memory.descriptor(), 0);
  slots.reserve(kBytes);
  for (int64_t step = 1; step <= 6; ++step) keep(slots, step);
  slots.forget_after(5);
  EXPECT_EQ(steps_of(slots), Steps{5});
  keep(slots, 6);
  EXPECT_EQ(steps_of(slots), (Steps{6, 5}));
  slots.forget_after(6);
  EXPECT_EQ(steps_of(slots), (Steps{6, 5}));
  slots.forget_after(0);
  EXPECT_EQ(steps_of(slots), Steps{});
}

TEST(SnapshotMemory, ACopyThatIsToBeKeptIsNotTheOneToOverwrite) {
  const SnapshotMemory memory(1);
  SnapshotSlots slots(memory.descriptor(), 0);
  slots.reserve(kBytes);
  keep(slots, 1), keep(slots, 2);
  const int newest = slots.heads()[0].slot, older = slots.heads()[1].slot;
  EXPECT_EQ(slots.slot_to_write(), older);
  EXPECT_EQ(slots.slot_to_write(newest), older);
  EXPECT_EQ(slots.slot_to_write(older), newest);
}

TEST(SnapshotMemory, CopiesOfAPeerAreApartFromTheRanksOwn) {
  const SnapshotMemory memory(2);
  SnapshotSlots own(memory.descriptor(), 0), peer(memory.descriptor(), 0, SlotsOf::kPeer), next(memory.descriptor(), 1);
  own.reserve(kBytes), peer.reserve(2 * kBytes), next.reserve(kBytes);
  keep(own, 3), keep(peer, 4), keep(next, 5);
  EXPECT_TRUE(holds(own, 3) && holds(peer, 4) && holds(next, 5));
  EXPECT_EQ(steps_of(own), Steps{3});
  EXPECT_EQ(steps_of(peer), Steps{4});
  memory.clear();
  EXPECT_EQ(steps_of(peer), Steps{});
}

TEST(SnapshotMemory, TheChecksumIsThatOfTheBlocksChecksums) {
  std::vector<uint8_t> data(kSnapshotBlockBytes + 17);
  for (size_t at = 0; at < data.size(); ++at) data[at] = static_cast<uint8_t>(at * 7);
  const uint64_t sums[] = {hash64(data.data(), kSnapshotBlockBytes), hash64(data.data() + kSnapshotBlockBytes, 17)};
  EXPECT_EQ(snapshot_checksum(data.data(), std::ssize(data)), hash64(sums, sizeof sums));
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
