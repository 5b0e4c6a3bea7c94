// What of the activations is computed again in the backward pass instead of being kept (Chen et al. 2016).
#pragma once

#include <cstdint>
#include <vector>

namespace espalier::plan {

struct LayerRange {
  int64_t begin = 0, end = 0;  // layers [begin, end)
  bool recompute = false;
};

// Megatron's methods.
//   kNone     nothing but what the kernels themselves recompute (attention probabilities are never kept)
//   kUniform  layers in chunks of num_layers; the input of each chunk is kept
//   kBlock    the first num_layers layers of every part of the model, that is of every virtual stage, each with its own
//             input kept; the others keep everything
struct Recompute {
  enum class Kind { kNone, kUniform, kBlock };
  Kind kind = Kind::kNone;
  int64_t num_layers = 0;

  // Consecutive ranges that cover layers 0 .. total - 1 of a stack, which `before` layers of the same part precede.
  std::vector<LayerRange> ranges(int64_t total, int64_t before = 0) const;
  bool operator==(const Recompute&) const = default;
};

// Layers of a part whose forward pass runs again.
int64_t num_recomputed(const Recompute& recompute, int64_t num_layers_of_part);

}  // namespace espalier::plan
