// What every layer of one forward pass shares. Shapes: b micro-batch size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dropout.h"
#include "kernels/rotary.h"
#include "tensor/attention_context.h"

namespace espalier::nn {

struct ForwardContext {
  // Slopes of ALiBi are those of all heads, a relative bias that of the tensor rank's.
  tensor::AttentionContext attention;
  // Of layers that attend to another sequence as well: what their queries see of it. Never causal; with a cache, that
  // keeps the other sequence's keys and values.
  tensor::AttentionContext cross_attention;
  // Of models with rotary positions: the angles, and the position of every row that attention sees, [b, s] int64.
  kernels::RotaryTable rotary;
  at::Tensor positions;
  double hidden_dropout = 0;  // 0 in evaluation and generation
  uint64_t seed = 0;
  // Position in the sample of the first row of the activations [S, b, h] that this rank holds.
  int64_t first_position = 0;
  const std::vector<int64_t>* sample_numbers = nullptr;  // [b]; outlives the backward pass

  // The dropout site of that name ("layers.3.mlp").
  kernels::DropoutSite dropout_site(const std::string& name) const;
};

}  // namespace espalier::nn
