// c10d's own use of the rendezvous store: keys across processes, a Gloo group over it, a TCPStore of a launcher of
// others.
#include "dist/rendezvous.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "dist/backend.h"
#include "launch/rendezvous_server.h"
#include "launch/secret.h"

namespace espalier::dist {
namespace {
namespace store_test {

int free_port() {
  const launch::RendezvousServer brief({.address = "127.0.0.1", .secret = "s"});
  return brief.port();
}

launch::RankEnvironment place_of(int64_t rank, int64_t world_size, int port) {
  launch::RankEnvironment place;
  place.kind = launch::LaunchKind::kByHand;
  place.rank = place.local_rank = rank;
  place.world_size = place.local_world_size = world_size;
  place.master_port = port;
  return place;
}

// Runs `function` for each rank in a process of its own; true if all came through.
template <class Function>
bool run_processes(int64_t count, const Function& function) {
  for (int64_t rank = 0; rank < count; ++rank)
    if (fork() == 0) {
      try {
        function(rank);
        _exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(rank), error.what());
        _exit(1);
      }
    }
  bool all_well = true;
  for (int status = 0; wait(&status) > 0;) all_well = all_well && status == 0;
  return all_well;
}

void sum_over_gloo(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size) {
  const auto gloo = make_gloo(store, rank, size, {.one_machine = true});
  std::vector<at::Tensor> values = {at::full({7}, static_cast<double>(rank + 1))};
  gloo->allreduce(values)->wait();
  const int64_t sum = size * (size + 1) / 2;
  const double expected = 7.0 * static_cast<double>(sum);
  if (values[0].sum().item<double>() != expected) throw std::runtime_error(concat("sum ", values[0]));
}

TEST(LaunchStore, RankZeroHostsWhereNobodyElseDoesAndGlooMeetsThere) {
  setenv(launch::kSecretVariable, "a secret of this test", 1);
  const int port = free_port();
  EXPECT_TRUE(run_processes(3, [&](int64_t rank) {
    at::set_num_threads(1);
    const auto store = connect_rendezvous(place_of(rank, 3, port));
    sum_over_gloo(store, rank, 3);
  }));
  unsetenv(launch::kSecretVariable);
}

TEST(LaunchStore, ARestartedGroupDoesNotReadWhatTheFormerLeft) {
  setenv(launch::kSecretVariable, "a secret of this test", 1);
  const launch::RendezvousServer server({.address = "127.0.0.1", .secret = "a secret of this test"});
  launch::RankEnvironment place = place_of(0, 1, server.port());
  place.launcher_store = true;
  connect_rendezvous(place)->set("key", "first");
  place.restart_count = 1;
  const auto again = connect_rendezvous(place);
  EXPECT_FALSE(again->check({"key"}));
  again->set("key", "second");
  EXPECT_EQ(again->get_to_str("key"), "second");
  const auto copy = again->clone();
  EXPECT_EQ(copy->get_to_str("key"), "second");
  place.restart_count = 0;
  EXPECT_EQ(connect_rendezvous(place)->get_to_str("key"), "first");
  unsetenv(launch::kSecretVariable);
}

TEST(LaunchStore, AForeignLaunchersStoreIsC10ds) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t agent = fork();
  if (agent == 0) {  // what torchrun does
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    c10d::TCPStore store("127.0.0.1", options);
    const int port = store.getPort();
    if (write(ready[1], &port, sizeof port) != sizeof port) _exit(1);
    store.setTimeout(std::chrono::seconds(20));
    store.wait({"ranks/0/done0", "ranks/0/done1"});
    _exit(0);
  }
  int port = 0;
  ASSERT_EQ(read(ready[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  EXPECT_TRUE(run_processes(2, [&](int64_t rank) {
    launch::RankEnvironment place = place_of(rank, 2, port);
    place.foreign_store = true;
    const auto store = connect_rendezvous(place);
    sum_over_gloo(store, rank, 2);
    store->set(concat("done", rank), "1");
  }));
}

}  // namespace store_test
}  // namespace
}  // namespace espalier::dist
