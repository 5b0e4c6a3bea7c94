// Copies of the state at other machines, over several starts: each rank is a process of its own, of one machine, and
// this process holds the memory of all machines, as their launchers do.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "ckpt/snapshots.h"
#include "dist/local_ranks.h"
#include "launch/snapshot_memory.h"
#include "plan/layout.h"

namespace espalier::ckpt {
namespace copies_test {

using launch::SlotsOf;
using launch::SnapshotHead;
using launch::SnapshotMemory;

constexpr int64_t kElements = 300'007;
constexpr int64_t kBytes = kElements * 4;

// Every rank has other tensors, as with ZeRO, and knows their values at every step.
std::vector<TensorToSave> state_of(int64_t rank, int64_t step) {
  const auto begin = static_cast<double>(1000 * rank + step);
  return {{concat("weights of rank ", rank), "weights-00000.safetensors", at::arange(kElements, at::kFloat) + begin}};
}

bool soon(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// Of a start.
struct Start {
  std::optional<int64_t> jump = 1;
  int64_t arrives_from = 1;  // so many ranks before
  bool is_first_start = true;
  std::vector<int64_t> machines = {};  // of the ranks; empty: each has one of its own
  double longest_wait_seconds = 30;
};

class Rank {
 public:
  Rank(const dist::Grid& grid, const SnapshotMemory& memory, const Start& setup)
      : own(memory.descriptor(), 0),
        peer(memory.descriptor(), 0, SlotsOf::kPeer),
        rank(grid.rank),
        world(grid.world),
        source((rank + world.size() - setup.arrives_from) % world.size()),
        snapshots(options(own, peer, rank, setup, &changes), world, state_of(rank, 0)) {}
  static Snapshots::Options options(launch::SnapshotSlots& own, launch::SnapshotSlots& peer, int64_t rank,
                                    const Start& setup, std::vector<std::string>* changes = nullptr) {
    return {.own = own,
            .machine = setup.machines.empty() ? rank : setup.machines[static_cast<size_t>(rank)],
            .replication = Snapshots::Replication{
                .slots = peer,
                .jump = setup.jump,
                .is_first_start = setup.is_first_start,
                .link = {.secret = "secret", .name = concat("rank ", rank), .master_address = "127.0.0.1"},
                .longest_wait_seconds = setup.longest_wait_seconds,
                .on_change = [changes](const std::string& event, int64_t, const std::string& detail) {
                  if (changes != nullptr) changes->push_back(concat(event, ": ", detail));
                }}};
  }

  // What is wrong with what it finds; nothing if it is this rank's state at this step.
  std::string resume(int64_t step) {
    const int64_t found = snapshots.newest().value_or(0);
    if (found != step) return concat("rank ", rank, " finds step ", found);
    const at::Tensor values = at::zeros({kElements}, at::kFloat);
    const int64_t told = snapshots.load(step, {{state_of(rank, 0)[0].name, values}}).step;
    snapshots.replicate();
    if (told != step) return concat("rank ", rank, " is told of step ", told);
    if (at::equal(values, state_of(rank, step)[0].value)) return "";
    return concat("rank ", rank, " loads values that begin with ", values[0].item<float>());
  }
  void keep(int64_t step) {
    store::TrainingState numbers;
    numbers.step = step;
    snapshots.keep(numbers, state_of(rank, step));
  }
  // Whether it has the copy of the rank whose copies come here.
  bool holds(int64_t step) const {
    const at::Tensor expected = state_of(source, step)[0].value;
    for (const SnapshotHead& head : peer.heads())
      if (head.step == step && std::memcmp(peer.data(head.slot), expected.const_data_ptr(), kBytes) == 0) return true;
    return false;
  }
  // Until every rank holds such a copy. What is missing.
  std::string wait_for_copies(int64_t step) {
    const bool has_come = soon([&] { return holds(step); });
    world.barrier();
    return has_come ? "" : concat("rank ", rank, " holds no whole copy of step ", step, " of rank ", source);
  }

  launch::SnapshotSlots own, peer;
  const int64_t rank;
  const dist::Group world;
  const int64_t source;
  std::vector<std::string> changes;
  Snapshots snapshots;
};

using Machines = std::vector<std::shared_ptr<SnapshotMemory>>;

std::shared_ptr<SnapshotMemory> new_machine() { return std::make_shared<SnapshotMemory>(1); }

int64_t used_bytes(const SnapshotMemory& memory) {
  struct stat status = {};
  EXPECT_EQ(fstat(memory.descriptor(), &status), 0);
  return status.st_blocks * 512;
}

void start(const Machines& machines, const Start& setup, const std::function<std::string(Rank&)>& action) {
  const auto run = [&](const dist::Grid& grid) {
    set_log_level(LogLevel::kQuiet);
    Rank rank(grid, *machines[static_cast<size_t>(grid.rank)], setup);
    return action(rank);
  };
  for (const std::string& trouble : dist::run_ranks(plan::parse_layout(concat("dp", machines.size())).grid, run))
    EXPECT_EQ(trouble, "");
}
void start_anew(const Machines& machines, const Start& setup = {}) {
  start(machines, setup, [](Rank& rank) {
    rank.snapshots.replicate();
    rank.keep(8), rank.keep(9);
    return rank.wait_for_copies(9);
  });
}
void start_again(const Machines& machines, const Start& setup = {}) {
  start(machines, setup, [](Rank& rank) {
    const std::string trouble = rank.resume(9), missing = rank.wait_for_copies(9);
    return trouble.empty() ? missing : trouble;
  });
}

// After the first loss d is another rank, and holds what it was and what it is; then it becomes a third, while both of
// these are wanted elsewhere.
TEST(Copies, ASlotThatAnotherRankWantsIsNotOverwrittenBefore) {
  const auto a = new_machine(), b = new_machine(), c = new_machine(), d = new_machine();
  ASSERT_NO_FATAL_FAILURE(start_anew({a, b, c, d}));
  ASSERT_NO_FATAL_FAILURE(start_again({a, c, d, new_machine()}));
  ASSERT_NO_FATAL_FAILURE(start_again({a, d, new_machine(), new_machine()}));
}

TEST(Copies, ADamagedOneAtAnotherMachineIsSentAgain) {
  const auto a = new_machine(), b = new_machine();
  start_anew({a, b});
  launch::SnapshotSlots of_a(b->descriptor(), 0, SlotsOf::kPeer);
  of_a.reserve(kBytes);
  for (const SnapshotHead& head : of_a.heads()) const_cast<uint8_t*>(of_a.data(head.slot))[kBytes / 2] ^= 4;
  start_again({a, b});
}

// What is announced is not what comes: the checksum is that of a longer one.
TEST(Copies, OneThatArrivesDamagedIsTakenFromElsewhere) {
  const auto a = new_machine(), b = new_machine();
  start_anew({a, b});
  launch::SnapshotSlots of_a(b->descriptor(), 0, SlotsOf::kPeer);
  of_a.reserve(2 * kBytes);
  SnapshotHead head = of_a.heads().at(0);
  head.bytes += 64;
  head.checksum = launch::snapshot_checksum(of_a.data(head.slot), head.bytes);
  of_a.begin(head.slot), of_a.finish(head.slot, head);
  start_again({b, a});
}

TEST(Copies, MemoryForACopyThatDoesNotComeAnyMoreIsGivenBack) {
  const auto a = new_machine();
  start_anew({a, new_machine()});
  EXPECT_GE(used_bytes(*a), 4 * kBytes);
  start({a}, {}, [](Rank& rank) { return rank.resume(9); });
  EXPECT_LT(used_bytes(*a), 3 * kBytes);
  EXPECT_GE(used_bytes(*a), 2 * kBytes);
}

TEST(Copies, MemoryForThoseOfOtherMachinesIsTakenOnceEveryRankHasThatForItsOwn) {
  const Machines machines = {new_machine(), new_machine(), new_machine()};
  const auto run = [&](const dist::Grid& grid) -> std::string {
    const SnapshotMemory& memory = *machines[static_cast<size_t>(grid.rank)];
    launch::SnapshotSlots own(memory.descriptor(), 0), peer(memory.descriptor(), 0, SlotsOf::kPeer);
    const at::Tensor huge = at::empty({int64_t{1} << 39}, at::TensorOptions().dtype(at::kByte).device(at::kMeta));
    const std::vector<TensorToSave> tensors =
        grid.rank == 1 ? std::vector<TensorToSave>{{"huge", "weights-00000.safetensors", huge}}
                       : state_of(grid.rank, 0);
    try {
      const Snapshots snapshots(Rank::options(own, peer, grid.rank, {}), grid.world, tensors);
    } catch (const UserError& error) {
      return "";
    }
    return "there is a terabyte";
  };
  for (const std::string& trouble : dist::run_ranks(plan::parse_layout("dp3").grid, run)) EXPECT_EQ(trouble, "");
  EXPECT_GE(used_bytes(*machines[0]), 2 * kBytes);
  EXPECT_LT(used_bytes(*machines[0]), 3 * kBytes) << "for rank 2, whose machine is another";
}

// After a start with one machine less it leads back to where it begins.
TEST(Copies, AJumpThatFitsNoMoreIsRefusedAtTheFirstStartOnly) {
  const Machines machines = {new_machine(), new_machine(), new_machine()};
  ASSERT_NO_FATAL_FAILURE(start_anew(machines, {.jump = 2, .arrives_from = 2}));
  try {
    start({machines[0], machines[1]}, {.jump = 2}, [](Rank&) { return "begins"; });
    FAIL() << "it is not refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("--replication-jump 2: the copies of rank 0 would go to rank 0, which is "
                        "on the same machine"),
              std::string::npos)
        << error.what();
  }
  start_again({machines[0], machines[1]}, {.jump = 2, .arrives_from = 1, .is_first_start = false});
}

TEST(Copies, GoToAnotherMachineWhereTheseHaveDifferentNumbersOfRanks) {
  const Machines machines = {new_machine(), new_machine(), new_machine(), new_machine(), new_machine()};
  const Start setup = {.jump = {}, .arrives_from = 2, .is_first_start = true, .machines = {0, 0, 1, 1, 2}};
  ASSERT_NO_FATAL_FAILURE(start_anew(machines, setup));
  start_again(machines, setup);
}

TEST(Copies, ThatNoOtherMachineCanHoldAreRefusedAtTheFirstStartOnly) {
  const Machines machines = {new_machine(), new_machine(), new_machine()};
  Start setup = {.jump = {}, .arrives_from = 2, .is_first_start = true, .machines = {0, 0, 1}};
  const auto keep = [](Rank& rank) -> std::string {
    rank.snapshots.replicate();
    rank.keep(8), rank.keep(9);
    return rank.rank != 2 ? rank.world.barrier(), "" : rank.wait_for_copies(9);  // of rank 0
  };
  try {
    start(machines, setup, keep);
    FAIL() << "it is not refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("a machine has 2 of the 3 ranks"), std::string::npos) << error.what();
  }
  setup.is_first_start = false;
  start(machines, setup, keep);
}

std::set<int> sockets() {
  std::set<int> found;
  for (int number = 3; number < 1024; ++number) {
    struct stat status = {};
    if (fstat(number, &status) == 0 && S_ISSOCK(status.st_mode)) found.insert(number);
  }
  return found;
}
int port(int socket, bool of_peer) {  // 0: it is not of TCP, or not connected
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  if ((of_peer ? getpeername(socket, to, &size) : getsockname(socket, to, &size)) != 0) return 0;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  return address.ss_family == AF_INET ? ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port) : 0;
}

// What is sent over connections that were made after these sockets goes nowhere from now on, and nobody says so.
int stall_since(const std::set<int>& before) {
  std::set<int> since, listening_ports;
  for (const int socket : sockets()) {
    if (before.contains(socket)) continue;
    if (port(socket, true) == 0)
      listening_ports.insert(port(socket, false));
    else
      since.insert(socket);
  }
  int num_stalled = 0;
  for (const int socket : since) {
    // Another rank's connection to this one, which ends where that rank is here already.
    if (listening_ports.contains(port(socket, false)) || port(socket, true) == 0) continue;
    int nowhere[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, nowhere) != 0 || dup2(nowhere[0], socket) < 0) return 0;
    ++num_stalled;
  }
  return num_stalled;
}

// A copy of 1.2 MB: a step is not done before that of the step before is at the other machine, whole.
TEST(Copies, OneHasArrivedBeforeTheNextStepCounts) {
  const Machines machines = {new_machine(), new_machine()};
  start(machines, {}, [](Rank& rank) -> std::string {
    rank.snapshots.replicate();
    for (int64_t step = 1; step <= 50; ++step) {
      rank.snapshots.settle();
      if (step > 1 && !rank.holds(step - 1))
        return concat("rank ", rank.rank, " does not hold the copy of step ", step - 1, " of the other");
      rank.keep(step);
    }
    rank.world.barrier();
    return "";
  });
}

// The copy of a replica stands for that of the first rank, which may be killed before it has recorded the step.
TEST(Copies, OfAReplicaAreMadeOnceTheFirstRankHasRecordedTheStep) {
  const Machines machines = {new_machine(), new_machine()};
  const auto run = [&](const dist::Grid& grid) -> std::string {
    launch::SnapshotSlots own(machines[static_cast<size_t>(grid.rank)]->descriptor(), 0);
    Snapshots snapshots({.own = own}, grid.world, state_of(0, 0));
    launch::SnapshotSlots of_other(machines[1]->descriptor(), 0);
    of_other.reserve(snapshots.bytes());
    for (int64_t step = 1; step <= 4; ++step) {
      if (grid.rank == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        for (const SnapshotHead& head : of_other.heads())
          if (head.step == step) return concat("there is a copy of step ", step, ", which is not recorded");
      }
      store::TrainingState numbers;
      numbers.step = step;
      snapshots.keep(numbers, state_of(0, step));
    }
    return "";
  };
  for (const std::string& trouble : dist::run_ranks(plan::parse_layout("dp2").grid, run)) EXPECT_EQ(trouble, "");
}

// Nothing moves, and the connections stand: local copies go on, and others reach the other machine again.
TEST(Copies, OneThatDoesNotMoveIsGivenUpAndOthersAreSentLater) {
  const Machines machines = {new_machine(), new_machine()};
  start(machines, {.longest_wait_seconds = 0.2}, [](Rank& rank) -> std::string {
    const std::set<int> before = sockets();
    rank.snapshots.replicate();
    rank.keep(1), rank.keep(2);
    std::string trouble = rank.wait_for_copies(2);
    rank.snapshots.settle();  // who sent them has heard of it
    rank.world.barrier();
    const int num_stalled = stall_since(before);
    if (num_stalled != 1) return concat(num_stalled, " connections are stalled");
    int64_t step = 3;
    // All ranks hear of the same changes after the same step.
    const bool has_resumed = soon([&] {
      rank.keep(step++);
      return rank.world.sum(static_cast<double>(rank.changes.size())) >= 4;
    });
    if (!has_resumed) return concat("after step ", step, " it was heard: ", join(rank.changes, "; "));
    rank.keep(step);
    trouble += rank.wait_for_copies(step);
    if (step < 13) trouble += concat("tried again after step ", step);
    if (rank.changes.size() != 2 || !rank.changes[0].starts_with("replication stopped") ||
        rank.changes[0].find("has been under way for") == std::string::npos ||
        rank.changes[0].find("The newest that is at another machine is of iteration 2, ") == std::string::npos ||
        !rank.changes[1].starts_with("replication resumed"))
      trouble += join(rank.changes, "; ");
    return trouble;
  });
}

}  // namespace copies_test
}  // namespace espalier::ckpt
