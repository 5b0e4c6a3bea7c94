// Which machine is to blame, from planted failures: what ranks, drivers and schedulers really say of them.
#include "watch/blame.h"

#include <gtest/gtest.h>

#include <csignal>
#include <random>

#include "base/error.h"

namespace espalier::watch {
namespace {

using launch::Failure;

struct Planted {
  Cause cause;
  bool is_of_machine;  // it recurs on one machine, which is to be left out
  int signal, exit_code;
  bool lost_machine;
  std::string message, last_lines;
};

// Twelve classes.
std::vector<Planted> classes() {
  return {
      {Cause::kMachineLost, true, 0, 69, true, "its launcher is gone", ""},
      {Cause::kDevice, true, 0, 1, false, "CUDA error: uncorrectable ECC error encountered", ""},
      {Cause::kDevice, true, SIGABRT, 0, false, "", "NVRM: Xid (PCI:0000:c6:00): 79, GPU has fallen off the bus."},
      {Cause::kHang, true, SIGKILL, 0, false, "the run hangs: rank 3 (process 42 on n7) sleeps in phase train", ""},
      {Cause::kKilled, true, SIGKILL, 0, false, "", ""},
      {Cause::kBusError, true, SIGBUS, 0, false, "", ""},
      {Cause::kNetwork, true, 0, 1, false, "NCCL error: unhandled system error, ibv_post_send failed", ""},
      {Cause::kStorage, false, 0, 74, false, "cannot write 'run/step_00000100.partial/x': No space left on device", ""},
      {Cause::kStorage, false, 0, 74, false, "cannot read 'data.bin': Stale file handle", ""},
      {Cause::kProgram, false, 0, 17, false, "the loss of step 812 is not finite", ""},
      {Cause::kPeer, false, 0, 69, false, "rank 4 has lost rank 3: connection closed by peer", ""},
      {Cause::kStopped, false, SIGTERM, 0, false, "",
       "slurmstepd: error: *** STEP 12.0 CANCELLED DUE TO PREEMPTION ***"},
  };
}

Failure failure_of(const Planted& planted, const std::string& host, double time) {
  Failure failure;
  failure.host = host, failure.time = time, failure.phase = "train", failure.step = static_cast<int64_t>(time);
  failure.signal = planted.signal, failure.exit_code = planted.exit_code, failure.lost_machine = planted.lost_machine;
  failure.message = planted.message, failure.last_lines = planted.last_lines;
  return failure;
}

// A hundred runs on 48 machines. In each a fault of one class is planted, three times on one machine where it is a
// machine's, else on any; two more failures that say nothing of a machine, and one kill elsewhere, come between.
TEST(Blame, NamesTheMachineOfAHundredPlantedFaultsAndNoOther) {
  std::mt19937 random(7);
  const auto host = [&] { return concat("n", random() % 48); };
  int num_right = 0, num_innocent = 0;
  std::string wrong;
  for (int run = 0; run < 100; ++run) {
    const std::vector<Planted> all = classes();
    const Planted& planted = all[static_cast<size_t>(run) % all.size()];
    const std::string culprit = host();
    std::vector<Failure> crashes;
    double time = 1000;
    for (int times = 0; times < 3; ++times) {
      crashes.push_back(failure_of(planted, planted.is_of_machine ? culprit : host(), time++));
      crashes.push_back(failure_of(all[times < 2 ? 9 : 4], host(), time++));
    }
    const auto named = machines_to_leave_out(crashes);
    bool is_right = cause_of(crashes[0]) == planted.cause && named.size() == (planted.is_of_machine ? 1u : 0u);
    for (const Blame& blame : named) {
      const bool is_culprit = planted.is_of_machine && blame.host == culprit;
      num_innocent += !is_culprit;
      is_right = is_right && is_culprit && blame.evidence.size() >= 3;
    }
    num_right += is_right;
    if (!is_right) wrong += concat("run ", run, ": ", to_string(planted.cause), " on ", culprit, "\n");
  }
  EXPECT_GE(num_right, 95) << wrong;
  EXPECT_LE(num_innocent, 1) << wrong;
}

TEST(Blame, FailuresThatAreSpreadBlameNobody) {
  std::vector<Failure> crashes;
  for (int number = 0; number < 30; ++number)
    crashes.push_back(failure_of(classes()[4], concat("n", number % 4), number));  // memory, everywhere
  EXPECT_TRUE(machines_to_leave_out(crashes).empty());
  EXPECT_TRUE(machines_to_leave_out({}).empty());
  EXPECT_TRUE(machines_to_leave_out({crashes[0]}).empty());
}

}  // namespace
}  // namespace espalier::watch
