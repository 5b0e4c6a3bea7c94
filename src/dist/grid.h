// The groups of a GridShape: this process's place, and one group along each axis.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dist/backend.h"
#include "dist/device_backend.h"
#include "dist/group.h"
#include "spec/grid.h"
#include "spec/shard.h"

namespace c10d {
class Store;
}

namespace espalier::dist {

struct Grid {
  spec::GridShape shape;
  spec::GridPosition position;
  int64_t rank = 0;
  std::string transport = "none";  // by what the ranks exchange, for people
  at::Device device = at::kCPU;    // where this process's parameters, batches and activations are

  Group world;
  Group tensor;
  Group context;
  Group data;      // the replicas of this shard at one context position
  Group gradient;  // context x data: what a gradient is summed over
  Group pipeline;  // with lines, where stages are on devices: kForwardLine, kBackwardLine
  Group model;     // tensor x pipeline: all shards of one replica
  // Stages of this pipeline that hold the same parameters, where this process is of one of them.
  struct Shared {
    std::vector<int64_t> stages;
    Group group;
  };
  std::vector<Shared> shared;
  std::vector<std::vector<int64_t>> shared_stages;  // of all groups of that kind, as GridOptions has them

  // CHECKs that there is one of these stages.
  const Group& shared_by(const std::vector<int64_t>& stages) const;

  spec::TensorShard tensor_shard() const { return {shape.tensor, position.tensor}; }
};

// From each stage to the next, and back: activations go by the first, gradients by the second. The messages of each are
// received in the order in which they are sent (plan::check_schedule).
inline constexpr int kForwardLine = 0, kBackwardLine = 1;

// The grid of one process: no communication.
const Grid& single_process();

struct GridOptions {
  c10::intrusive_ptr<c10d::Store> store;  // where the ranks meet
  // Sets of stages that hold parameters in common (plan::shared_stages), the same on all ranks.
  std::vector<std::vector<int64_t>> shared_stages;
  BackendOptions backend;
  at::Device device = at::kCPU;
  MakeDeviceBackend make_device_backend = nullptr;  // needed by several ranks whose device is not the CPU
};

// Called by all ranks of the shape.
Grid make_grid(const spec::GridShape& shape, int64_t rank, const GridOptions& options);

}  // namespace espalier::dist
