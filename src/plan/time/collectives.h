// How long ranks take to exchange, by rings (Thakur et al. 2005) over the links of a node and the network between
// nodes, with the latencies of NCCL's own model. Pure functions.
#pragma once

#include "plan/run_shape.h"
#include "plan/time/machine.h"

namespace espalier::plan {

// Ranks that exchange, and where they sit: ranks fill nodes in their order.
struct RingPlace {
  int64_t num_ranks = 1;
  int64_t per_node = 1;  // of them in one node
  int64_t on_node = 1;   // how many such rings share a node's way out
  int64_t num_nodes() const { return (num_ranks + per_node - 1) / per_node; }
};

// Of a group whose ranks are `stride` apart, in a run of `grid`.
RingPlace ring_place(const Machine& machine, const spec::GridShape& grid, int64_t stride, int64_t num_ranks);
RingPlace tensor_ring(const Machine& machine, const spec::GridShape& grid);
RingPlace context_ring(const Machine& machine, const spec::GridShape& grid);
RingPlace sharer_ring(const Machine& machine, const spec::GridShape& grid);  // data and context together

// Seconds for `bytes` that every rank has, or will have, whole: `ways` 1 for an all-gather or a reduce-scatter, 2 for
// an all-reduce. `times`: this many exchanges that share the bytes.
double ring_seconds(const Machine& machine, const RingPlace& place, double bytes, double ways, double times = 1);

// Seconds for a message to the rank of the next or an earlier pipeline stage, while all ranks of a stage send.
double stage_seconds(const Machine& machine, const spec::GridShape& grid, double bytes);

}  // namespace espalier::plan
