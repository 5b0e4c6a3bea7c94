// Attention: softmax(scale * Q K^T + bias, masked) V, tiled, in fp32 inside; scale * Q K^T perhaps capped. The scale,
// and a bias that depends on head and distance (ALiBi, one that is learned, or both), are the context's.
//
// Never builds an s x s tensor (Dao et al. 2022 for the tiling and the backward recurrence), and skips the tiles of
// keys that none of a tile's queries sees. Scores are not rounded to the compute type, so Megatron's query-key layer
// scaling, which only guards that rounding, changes nothing here.
//
// `context` says what each query sees (tensor/attention_context.h), `heads` which heads there are: all, or those of
// this rank, whose first query head is then context.first_head. `layer` is the number of the layer in the whole model
// (a decoder's are counted after the encoder's): it names the dropout site and the cache's entry.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/heads.h"
#include "tensor/attention_context.h"

namespace espalier::kernels {

// Between the positions of one sequence. qkv: [s, b, heads.columns(head_size)], compute type, contiguous. Result:
// [s, b, heads.queries * head_size]. Dropout site "layers.N.attention".
// Keeps for backward: qkv, the result, and the log-sum-exp of every query (fp32, minus infinity where it sees no key);
// and context.relative_bias, which all layers share.
// With context.cache the new keys and values are appended to those of the cache's layer, each row's after its own
// length, before use, and no graph is built.
at::Tensor attention(const at::Tensor& qkv, const tensor::AttentionContext& context, Heads heads, int64_t layer);

// From the positions of one sequence to those of another. query: [sq, b, heads.query_columns(head_size)]; key_value:
// [sk, b, heads.key_value_columns(head_size)]; compute type, contiguous. Result: as query. Dropout site
// "layers.N.cross_attention". The two sequences' positions have no common order: causality, a window and a bias by
// distance are bugs here, so context.mask is kFull, or last_key defined.
// Keeps for backward: query, key_value, the result, and the log-sum-exp. With a context.cache (which is not read: the
// caller keeps key_value) no graph is built, and a few queries run as fast as the keys can be read.
at::Tensor cross_attention(const at::Tensor& query, const at::Tensor& key_value,
                           const tensor::AttentionContext& context, Heads heads, int64_t layer);

// The slopes of ALiBi (Press et al. 2022) for `num_heads` heads, [heads] float32, as Megatron-DeepSpeed computes them.
at::Tensor alibi_slopes(int64_t num_heads);

}  // namespace espalier::kernels
