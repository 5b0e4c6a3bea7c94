// Self-attention of fused query/key/value projections: softmax(scale * Q K^T + bias, masked) V, tiled, in fp32 inside.
//
// Never builds an s x s tensor (Dao et al. 2022 for the tiling and the backward recurrence). Scores are not rounded to
// the compute type, so Megatron's query-key layer scaling, which only guards that rounding, changes nothing here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/heads.h"
#include "tensor/attention_context.h"

namespace espalier::kernels {

// qkv: [s, b, heads.columns(head_size)], compute type, contiguous. All heads, or those of this rank
// (context.first_head, of the queries). Result: [s, b, heads.queries * head_size]. `layer` is the global layer number
// (dropout site "attention", cache entry).
// Keeps for backward: qkv, the result, and the log-sum-exp of every query (fp32).
// With context.cache the new keys and values are appended to the cache's layer before use, and no graph is built.
at::Tensor attention(const at::Tensor& qkv, const tensor::AttentionContext& context, Heads heads, int64_t layer);

// The slopes of ALiBi (Press et al. 2022) for `num_heads` heads, [heads] float32, as Megatron-DeepSpeed computes them.
at::Tensor alibi_slopes(int64_t num_heads);

}  // namespace espalier::kernels
