// What the ranks of one machine exchange through shared memory, against loops: lengths around the pieces in which it
// travels, every type, more messages than places, and peers that err or leave.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "base/error.h"
#include "dist/backend.h"
#include "dist/internal/shared_group.h"
#include "dist/internal/shared_memory.h"
#include "dist/local_ranks.h"

namespace espalier::dist {
namespace {
namespace shared_memory_test {

constexpr int64_t kArea = SharedGroup::kAreaBytes;

// Small whole numbers, different on every rank: their sums are exact in every type but bf16 beyond 256.
at::Tensor values_of(int64_t rank, int64_t count, at::ScalarType type) {
  return ((at::arange(count) * 7 + rank * 3) % 31).to(type);
}

void check_equal(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  if (!at::equal(actual, expected)) throw std::runtime_error(what + " is wrong");
}

void check_lengths(const Group& group, int64_t count, at::ScalarType type) {
  const int64_t n = group.size(), me = group.rank();
  const std::string what = concat(" of ", count, " ", c10::toString(type));
  const at::Tensor mine = values_of(me, count, type), wide = values_of(me, count * n, type);
  at::Tensor sum = at::zeros({count}, type), wide_sum = at::zeros({count * n}, type), all, transposed;
  std::vector<at::Tensor> parts, crossed;
  for (int64_t r = 0; r < n; ++r) {
    sum += values_of(r, count, type);
    wide_sum += values_of(r, count * n, type);
    parts.push_back(values_of(r, count, type));
    crossed.push_back(values_of(r, count * n, type).narrow(0, me * count, count));
  }

  at::Tensor values = mine.clone();
  group.all_reduce(values);
  check_equal(values, sum, "all-reduce" + what);
  check_equal(group.all_gather(mine), at::cat(parts), "all-gather" + what);
  check_equal(group.reduce_scatter(wide), wide_sum.narrow(0, me * count, count), "reduce-scatter" + what);
  check_equal(group.all_to_all(wide.view({n, count})), at::stack(crossed), "all-to-all" + what);
  values = mine.clone();
  group.broadcast(values, n - 1);
  check_equal(values, values_of(n - 1, count, type), "broadcast" + what);

  // In place: this rank's part of the result is the part that it gives.
  at::Tensor whole = wide.clone();
  group.reduce_scatter_into(whole.narrow(0, me * count, count), whole);
  check_equal(whole.narrow(0, me * count, count), wide_sum.narrow(0, me * count, count),
              "reduce-scatter in place" + what);
  whole = at::zeros({count * n}, type);
  whole.narrow(0, me * count, count).copy_(mine);
  group.all_gather_into(whole, whole.narrow(0, me * count, count));
  check_equal(whole, at::cat(parts), "all-gather in place" + what);
}

TEST(SharedMemory, EveryLengthAndTypeIsTheLoopOverRanks) {
  const auto check = [](const Grid& grid) {
    for (const int64_t count : {1, 7, 33})
      for (const at::ScalarType type :
           {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte})
        check_lengths(grid.world, count, type);
    const int64_t piece = kArea / 4;
    for (const int64_t count : {piece - 1, piece, piece + 1, 3 * piece + 5})
      check_lengths(grid.world, count, at::kFloat);
    check_lengths(grid.world, kArea / 2 + 3, at::kHalf);
    return std::string("checked");
  };
  for (const int64_t size : {2, 3})
    for (const bool reads_directly : {true, false})
      EXPECT_EQ(run_ranks({.data = size}, check, {.reads_directly = reads_directly}),
                std::vector<std::string>(static_cast<size_t>(size), "checked"))
          << size << ", " << reads_directly;
}

// Of four ranks the last ones' sums cannot be made in place: 0.1 + 0.2 + ... in another order has other bits.
TEST(SharedMemory, SumsAreInTheOrderOfTheRanksHoweverTheyTravel) {
  constexpr int64_t kCount = 100'003;
  const auto check = [](const Grid& grid) {
    const auto values_at = [](int64_t rank) { return at::linspace(0.1 + 0.1 * static_cast<double>(rank), 7, kCount); };
    at::Tensor sum = values_at(0);
    for (int64_t rank = 1; rank < 4; ++rank) sum += values_at(rank);
    const at::Tensor values = values_at(grid.rank);
    grid.world.all_reduce(values);
    check_equal(values, sum, "sum");
    return std::string("checked");
  };
  for (const bool reads_directly : {true, false})
    EXPECT_EQ(run_ranks({.data = 4}, check, {.reads_directly = reads_directly}),
              std::vector<std::string>(4, "checked"));
}

TEST(SharedMemory, HalfPrecisionIsSummedInFp32AndRoundedOnce) {
  const auto check = [](const Grid& grid) {
    // Each of the small ones is lost next to 256 in bf16; together they are not.
    for (const int64_t count : {5, 100'000}) {
      const at::Tensor values = at::full({count}, grid.rank == 0 ? 256.0 : 1.0, at::kBFloat16);
      grid.world.all_reduce(values);
      check_equal(values, at::full({count}, 258.0, at::kBFloat16), "sum");
    }
    return std::string("checked");
  };
  EXPECT_EQ(run_ranks({.data = 3}, check), std::vector<std::string>(3, "checked"));
}

TEST(SharedMemory, ManyExchangesAreUnderWayAtOnce) {
  const auto check = [](const Grid& grid) {
    const int64_t count = kArea / 4 + 3;
    std::vector<at::Tensor> values;
    std::vector<Pending> pending;
    for (int64_t i = 0; i < 5; ++i) {
      values.push_back(at::full({count}, static_cast<double>(i + grid.rank), at::kFloat));
      pending.push_back(grid.world.start_all_reduce(values.back()));
    }
    for (int64_t i = 4; i >= 0; --i) pending[static_cast<size_t>(i)].wait();
    for (int64_t i = 0; i < 5; ++i)
      check_equal(values[static_cast<size_t>(i)], at::full({count}, static_cast<double>(2 * i + 1), at::kFloat), "sum");
    return std::string("checked");
  };
  EXPECT_EQ(run_ranks({.data = 2}, check), std::vector<std::string>(2, "checked"));
}

TEST(SharedMemory, MoreAndLongerMessagesThanThereAreGoodPlacesFor) {
  const auto check = [](const Grid& grid) {
    const Group& group = grid.pipeline;
    const int64_t peer = 1 - grid.rank, long_count = (int64_t{33} << 20) / 4 + 1;
    std::vector<at::Tensor> sent, received;
    std::vector<Pending> pending;
    // Both ways at once, forty of them, and a long one.
    for (int tag = 0; tag < 41; ++tag) {
      const int64_t count = tag == 20 ? long_count : tag;
      sent.push_back(values_of(grid.rank + tag, count, at::kFloat));
      received.push_back(at::empty({count}));
      pending.push_back(group.start_send(sent.back(), peer, tag));
    }
    // Within a window messages may be taken in any order.
    for (int tag = 0; tag < 41; tag += 8)
      for (int back = std::min(7, 40 - tag); back >= 0; --back)
        group.start_receive(received[static_cast<size_t>(tag + back)], peer, tag + back).wait();
    for (Pending& send : pending) send.wait();
    for (int tag = 0; tag < 41; ++tag)
      check_equal(received[static_cast<size_t>(tag)],
                  values_of(peer + tag, received[static_cast<size_t>(tag)].numel(), at::kFloat),
                  concat("message ", tag));
    return std::string("checked");
  };
  EXPECT_EQ(run_ranks({.pipeline = 2}, check), std::vector<std::string>(2, "checked"));
}

TEST(SharedMemory, MessagesOfOneTagArriveInOrder) {
  const auto check = [](const Grid& grid) {
    std::vector<Pending> pending;
    std::vector<at::Tensor> values;
    for (int i = 0; i < 40; ++i) {
      values.push_back(at::full({3}, grid.rank == 0 ? i : -1, at::kFloat));
      pending.push_back(grid.rank == 0 ? grid.pipeline.start_send(values.back(), 1, 5)
                                       : grid.pipeline.start_receive(values.back(), 0, 5));
    }
    for (Pending& exchange : pending) exchange.wait();
    for (int i = 0; i < 40; ++i) check_equal(values[static_cast<size_t>(i)], at::full({3}, i, at::kFloat), "message");
    return std::string("checked");
  };
  EXPECT_EQ(run_ranks({.pipeline = 2}, check), std::vector<std::string>(2, "checked"));
}

TEST(SharedMemory, RanksThatCallDifferentThingsAreTold) {
  const auto reason = [](const std::function<void(const Grid&)>& function) {
    const auto run = [&](const Grid& grid) {
      function(grid);
      return std::string();
    };
    try {
      run_ranks({.data = 2}, run);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const std::string sizes = reason([](const Grid& grid) { grid.world.all_reduce(at::zeros({3 + grid.rank})); });
  EXPECT_NE(sizes.find("has called ALLREDUCE SUM of Float, 1"), std::string::npos) << sizes;
  const std::string kinds = reason([](const Grid& grid) {
    if (grid.rank == 0) grid.world.barrier();
    if (grid.rank == 1) grid.world.all_reduce(at::zeros({3}));
  });
  EXPECT_NE(kinds.find("BARRIER"), std::string::npos) << kinds;
  // Of equally many bytes. Few and many are summed in different ways.
  for (const int64_t count : {6, 60'000}) {
    const std::string types = reason([=](const Grid& grid) {
      grid.world.all_reduce(grid.rank == 0 ? at::zeros({count}, at::kFloat) : at::zeros({2 * count}, at::kBFloat16));
    });
    EXPECT_NE(types.find("ALLREDUCE SUM of Float"), std::string::npos) << types;
    EXPECT_NE(types.find("ALLREDUCE SUM of BFloat16"), std::string::npos) << types;
    const std::string reductions = reason([=](const Grid& grid) {
      if (grid.rank == 0) grid.world.all_reduce(at::zeros({count}));
      if (grid.rank == 1) grid.world.all_reduce_max(at::zeros({count}));
    });
    EXPECT_NE(reductions.find("ALLREDUCE SUM of Float"), std::string::npos) << reductions;
    EXPECT_NE(reductions.find("ALLREDUCE MAX of Float"), std::string::npos) << reductions;
  }
  const std::string roots = reason([](const Grid& grid) { grid.world.broadcast(at::zeros({5}), grid.rank); });
  EXPECT_NE(roots.find("BROADCAST from 0 of Float"), std::string::npos) << roots;
  EXPECT_NE(roots.find("BROADCAST from 1 of Float"), std::string::npos) << roots;
  // The longest name.
  const std::string scattered = reason([](const Grid& grid) {
    if (grid.rank == 0) grid.world.reduce_scatter(at::zeros({4}, at::kFloat));
    if (grid.rank == 1) grid.world.reduce_scatter(at::zeros({8}, at::kBFloat16));
  });
  EXPECT_NE(scattered.find("_REDUCE_SCATTER_BASE SUM of BFloat16"), std::string::npos) << scattered;
  const std::string lengths = reason([](const Grid& grid) {
    if (grid.rank == 0) grid.world.start_send(at::zeros({3}), 1, 9).wait();
    if (grid.rank == 1) grid.world.start_receive(at::zeros({4}), 0, 9).wait();
  });
  EXPECT_NE(lengths.find("sends 12 bytes with tag 9, this rank expects 16"), std::string::npos) << lengths;
}

// Rank 1 runs `other` in a process of its own and leaves; what rank 0's barrier, in another, throws.
std::string barrier_beside(const std::function<void()>& other, std::chrono::milliseconds timeout) {
  const std::string file = ::testing::TempDir() + "shared-memory-store" + std::to_string(getpid());
  unlink(file.c_str());
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  for (int64_t rank = 0; rank < 2; ++rank)
    if (fork() == 0) {
      const auto store = c10::make_intrusive<c10d::FileStore>(file, 2);
      const auto machine = meet_on_machine(store, rank, 2).machine;
      const auto backend = make_shared_memory(store, machine, {0, 1}, rank, {.timeout = timeout});
      if (rank == 1) {
        other();
        _exit(0);
      }
      std::string text = "nothing was thrown";
      try {
        backend->barrier()->wait();
      } catch (const std::exception& error) {
        text = error.what();
      }
      EXPECT_GT(write(ends[1], text.data(), text.size()), 0);
      _exit(0);
    }
  close(ends[1]);
  char buffer[4096];
  const ssize_t count = read(ends[0], buffer, sizeof buffer);
  close(ends[0]);
  while (wait(nullptr) > 0) {
  }
  unlink(file.c_str());
  return {buffer, static_cast<size_t>(std::max<ssize_t>(count, 0))};
}

TEST(SharedMemory, AProcessThatEndsIsNamedByThoseWhoWaitForIt) {
  using std::chrono::minutes;
  EXPECT_EQ(barrier_beside([] {}, minutes(1)), "the process of rank 1 has ended");
  EXPECT_EQ(barrier_beside([] { kill(getpid(), SIGKILL); }, minutes(1)), "the process of rank 1 has ended");
}

// Rank 1 shows 3 MiB of ones, tells rank 0 where, does `then` and waits to be killed; what rank 0's reading says.
std::string read_beside(const std::function<void(SharedMachine& machine, std::vector<char>& shown)>& then) {
  SharedMemory memory = SharedMemory::create(SharedMachine::bytes_needed(2));
  const std::string address = memory.address();
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t other = fork();
  if (other == 0) {
    SharedMachine machine(SharedMemory::open(address), 1, 2);
    std::vector<char> shown(3 << 20, 1);
    const char* const at = shown.data();
    then(machine, shown);
    if (write(ends[1], &at, sizeof at) < 0) _exit(1);
    while (true) pause();
  }
  close(ends[1]);
  const SharedMachine machine(std::move(memory), 0, 2);
  const char* at = nullptr;
  EXPECT_EQ(read(ends[0], &at, sizeof at), static_cast<ssize_t>(sizeof at));
  close(ends[0]);
  std::vector<char> copy(3 << 20);
  std::string text = "read";
  try {
    machine.read(1, at, copy.data(), static_cast<int64_t>(copy.size()));
    if (copy != std::vector<char>(3 << 20, 1)) text = "something else";
  } catch (const std::exception& error) {
    text = error.what();
  }
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  if (text != "read") return text;
  try {
    machine.read(1, at, copy.data(), static_cast<int64_t>(copy.size()));
  } catch (const std::exception& error) {
    return concat("read, then ", error.what());
  }
  return text;
}

TEST(SharedMemory, WhatOthersShowIsReadUntilTheyLeaveOrEnd) {
  EXPECT_EQ(read_beside([](SharedMachine&, std::vector<char>&) {}), "read, then the process of rank 1 has ended");
  // It may have changed while it was read, as here.
  EXPECT_EQ(read_beside([](SharedMachine& machine, std::vector<char>& shown) {
              machine.abandon();
              shown.assign(shown.size(), 2);
            }),
            "rank 1 has left the exchange");
}

TEST(SharedMemory, WaitingEnds) {
  const auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1500)); };
  EXPECT_EQ(barrier_beside(sleep, std::chrono::milliseconds(300)), "nothing came within 0.3 s");
}

TEST(SharedMemory, OnlyTheMemoryThatWasOfferedIsOpened) {
  const SharedMemory memory = SharedMemory::create(100);
  memory.data()[99] = 'x';
  const SharedMemory same = SharedMemory::open(memory.address());
  EXPECT_EQ(same.data()[99], 'x');
  const std::string& address = memory.address();
  const std::string place = address.substr(0, address.rfind(' '));
  EXPECT_THROW(SharedMemory::open(place + " 1"), std::runtime_error);  // another number
  EXPECT_THROW(SharedMemory::open(concat(getpid(), " 0 4196 1")), std::runtime_error);
  EXPECT_THROW(SharedMemory::open("999999999 3 4196 1"), std::runtime_error);
}

}  // namespace shared_memory_test
}  // namespace
}  // namespace espalier::dist
