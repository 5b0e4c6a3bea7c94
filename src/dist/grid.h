// The groups of a GridShape: this process's place, and one group along each axis.
#pragma once

#include <cstdint>
#include <string>

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

  Group world;
  Group tensor;
  Group context;
  Group data;      // the replicas of this shard at one context position
  Group gradient;  // context x data: what a gradient is summed over
  Group pipeline;
  Group model;      // tensor x pipeline: all shards of one replica
  Group embedding;  // first and last stage of this pipeline, where both hold the tied embedding; else alone

  // One process, no communication.
  static Grid single();

  spec::TensorShard tensor_shard() const { return {shape.tensor, position.tensor}; }
  bool is_first_stage() const { return position.pipeline == 0; }
  bool is_last_stage() const { return position.pipeline == shape.pipeline - 1; }
};

// Called by all ranks of the shape. `store` is where they meet; `tied_embedding`: first and last stage share it.
Grid make_grid(const spec::GridShape& shape, int64_t rank, const c10::intrusive_ptr<c10d::Store>& store,
               bool tied_embedding);

}  // namespace espalier::dist
