// Dropout and the residual addition, with counter-based masks (tensor/rng.h): nothing is kept for backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/param.h"
#include "tensor/rng.h"

namespace espalier::kernels {

// Where a mask comes from. Counter: word 0 = feature / 4, word 1 = position in the sample, word 2 = head (0 outside
// attention) + 2^16 * (sample number >> 32), word 3 = low half of the sample number. Word feature % 4 of the block
// decides: the element is dropped when word < probability * 2^32, else scaled by 1 / (1 - probability).
struct DropoutSite {
  double probability = 0;                                // 0: no dropout (evaluation, generation)
  tensor::PhiloxKey key{};                               // philox_key(seed, "dropout/" + site name)
  const std::vector<int64_t>* sample_numbers = nullptr;  // [b]; outlives the backward pass
  int64_t first_position = 0;                            // of row 0 of x, where x is a part of the sequence
};

// residual + dropout(x + bias), of the type of the residual. x, residual: [s, b, h], compute type, the residual that or
// fp32, contiguous; bias: [h] or nullptr. The gradients have the types of x and residual.
// bias.grad += column sums of the gradient after the mask, in fp32.
at::Tensor bias_dropout_add(const at::Tensor& x, tensor::Param* bias, const at::Tensor& residual,
                            const DropoutSite& site, tensor::GradQueue& queue);

// dropout(x), x: [s, b, h].
at::Tensor dropout(const at::Tensor& x, const DropoutSite& site);

}  // namespace espalier::kernels
