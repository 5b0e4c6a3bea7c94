#include "plan/time/collectives.h"

#include <algorithm>

namespace espalier::plan {
namespace {

// What one of the rings that leave a node at once gets.
double way_out(const Machine& machine, int64_t num_rings) {
  const double shared = machine.network_bandwidth / static_cast<double>(num_rings);
  const double one = machine.ring_bandwidth > 0 ? std::min(machine.ring_bandwidth, shared) : shared;
  return std::min(one, machine.link_bandwidth);
}

}  // namespace

RingPlace ring_place(const Machine& machine, const spec::GridShape& grid, int64_t stride, int64_t num_ranks) {
  const int64_t devices = std::min(static_cast<int64_t>(machine.devices_per_node), grid.num_ranks());
  RingPlace place{.num_ranks = num_ranks};
  place.per_node = std::clamp<int64_t>(devices / std::min(stride, devices), 1, num_ranks);
  place.on_node = std::max<int64_t>(1, devices / place.per_node);
  return place;
}

RingPlace tensor_ring(const Machine& machine, const spec::GridShape& grid) {
  return ring_place(machine, grid, 1, grid.tensor);
}
RingPlace context_ring(const Machine& machine, const spec::GridShape& grid) {
  return ring_place(machine, grid, grid.tensor, grid.context);
}
RingPlace sharer_ring(const Machine& machine, const spec::GridShape& grid) {
  return ring_place(machine, grid, grid.tensor, grid.context * grid.data);
}

double ring_seconds(const Machine& machine, const RingPlace& place, double bytes, double ways, double times) {
  if (place.num_ranks <= 1 || bytes <= 0) return 0;
  const double ranks = static_cast<double>(place.num_ranks);
  const int64_t nodes = place.num_nodes();
  const double bandwidth = nodes > 1 ? way_out(machine, place.on_node) : machine.link_bandwidth;
  const double steps = ways * (ranks - 1), far = nodes > 1 ? std::min(steps, ways * static_cast<double>(nodes)) : 0;
  const double latency = machine.start_latency + (steps - far) * machine.link_latency + far * machine.network_latency;
  return ways * bytes * (ranks - 1) / ranks / bandwidth + times * latency;
}

double stage_seconds(const Machine& machine, const spec::GridShape& grid, double bytes) {
  if (bytes <= 0) return 0;
  const int64_t devices = static_cast<int64_t>(machine.devices_per_node);
  if (grid.num_ranks() <= devices) return machine.start_latency + machine.link_latency + bytes / machine.link_bandwidth;
  const int64_t stage = grid.num_ranks() / grid.pipeline;
  return machine.start_latency + machine.network_latency + bytes / way_out(machine, std::min(devices, stage));
}

}  // namespace espalier::plan
