// RMS norm of each query head and each key head over its own channels (Qwen 3), before any rotary embedding.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/heads.h"
#include "tensor/param.h"

namespace espalier::kernels {

// qkv: [s, b, heads.columns(head_size)], compute type, contiguous; both weights [head_size], shared by all heads.
// A copy of qkv with x / sqrt(mean(x^2) + epsilon) * weight in place of every query and key head, statistics in fp32,
// rounded once; values as they are.
// Keeps for backward: qkv, and 1/sqrt(mean square + epsilon) of every query and key head (fp32).
// The gradients of the weights are summed over this rank's heads and added in fp32, through `queue`.
at::Tensor qk_norm(const at::Tensor& qkv, tensor::Param& query_weight, tensor::Param& key_weight, Heads heads,
                   double epsilon, tensor::GradQueue& queue);

}  // namespace espalier::kernels
