#include "plan/time/collectives.h"

#include <gtest/gtest.h>

namespace espalier::plan {
namespace {

// Numbers that are easy to add up: 100 bytes a second in a node, 20 out of it, 3 of one ring at most.
Machine slow_machine() {
  Machine machine;
  machine.devices_per_node = 8;
  machine.link_bandwidth = 100;
  machine.network_bandwidth = 20;
  return machine;
}

TEST(RingPlace, SaysHowManyRanksShareANodeAndItsWayOut) {
  const Machine machine = slow_machine();
  const spec::GridShape bloom{.tensor = 4, .data = 8, .pipeline = 12};
  EXPECT_EQ(tensor_ring(machine, bloom).per_node, 4);
  EXPECT_EQ(tensor_ring(machine, bloom).num_nodes(), 1);
  const RingPlace data = sharer_ring(machine, bloom);
  EXPECT_EQ(data.num_ranks, 8);
  EXPECT_EQ(data.per_node, 2) << "ranks 0 and 4 of a node";
  EXPECT_EQ(data.num_nodes(), 4);
  EXPECT_EQ(data.on_node, 4) << "one for each tensor rank";
  const RingPlace wide = tensor_ring(machine, {.tensor = 16});
  EXPECT_EQ(wide.per_node, 8);
  EXPECT_EQ(wide.on_node, 1);
  EXPECT_EQ(context_ring(machine, {.tensor = 2, .context = 4, .data = 3}).per_node, 4);
  EXPECT_EQ(sharer_ring(machine, {.tensor = 1, .data = 3}).num_nodes(), 1) << "a run smaller than a node";
  EXPECT_EQ(sharer_ring(machine, {.tensor = 8, .data = 33}).num_nodes(), 33);
}

// Thakur et al. 2005: an all-reduce of N bytes sends 2 N (n - 1) / n from each rank.
TEST(RingSeconds, AreTheClosedForm) {
  Machine machine = slow_machine();
  const RingPlace four{.num_ranks = 4, .per_node = 4};
  EXPECT_DOUBLE_EQ(ring_seconds(machine, four, 400, 2), 2 * 400 * 3 / 4.0 / 100);
  EXPECT_DOUBLE_EQ(ring_seconds(machine, four, 400, 1), 400 * 3 / 4.0 / 100);
  EXPECT_EQ(ring_seconds(machine, {.num_ranks = 1}, 400, 2), 0);
  EXPECT_EQ(ring_seconds(machine, four, 0, 2), 0);
  // Seven ranks over nodes; four rings share the way out, or one is slower by itself.
  const RingPlace seven{.num_ranks = 7, .per_node = 2, .on_node = 4};
  EXPECT_DOUBLE_EQ(ring_seconds(machine, seven, 70, 1), 70 * 6 / 7.0 / 5);
  machine.ring_bandwidth = 3;
  EXPECT_DOUBLE_EQ(ring_seconds(machine, seven, 70, 1), 70 * 6 / 7.0 / 3);
}

TEST(RingSeconds, LatenciesCountSteps) {
  Machine machine = slow_machine();
  machine.link_bandwidth = machine.network_bandwidth = 1e30;
  machine.start_latency = 1000;
  machine.link_latency = 10;
  machine.network_latency = 1;
  // NCCL's own model: 2 (n - 1) steps, 2 for each node of them over the network.
  EXPECT_NEAR(ring_seconds(machine, {.num_ranks = 4, .per_node = 4}, 1, 2), 1000 + 6 * 10, 1e-9);
  EXPECT_NEAR(ring_seconds(machine, {.num_ranks = 8, .per_node = 4, .on_node = 2}, 1, 2), 1000 + 10 * 10 + 4, 1e-9);
  EXPECT_NEAR(ring_seconds(machine, {.num_ranks = 3, .per_node = 1, .on_node = 8}, 1, 2, 5), 5 * (1000 + 4), 1e-9);
}

TEST(StageSeconds, AllDevicesOfANodeSendAtOnce) {
  const Machine machine = slow_machine();
  EXPECT_DOUBLE_EQ(stage_seconds(machine, {.tensor = 4, .data = 8, .pipeline = 2}, 50), 50 / (20 / 8.0));
  EXPECT_DOUBLE_EQ(stage_seconds(machine, {.tensor = 2, .pipeline = 8}, 50), 50 / (20 / 2.0)) << "two of them cross";
  EXPECT_DOUBLE_EQ(stage_seconds(machine, {.tensor = 2, .pipeline = 4}, 50), 0.5) << "one node";
}

}  // namespace
}  // namespace espalier::plan
