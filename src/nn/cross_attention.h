// Attention from the positions of one sequence to those of another (a decoder's to its encoder's), with its
// projections, dropout and residual addition.
//
// Tensor ranks hold a range of the heads. The sequences are whole on every rank: with context ranks it is a bug.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "kernels/heads.h"
#include "nn/attention.h"
#include "nn/forward_context.h"
#include "nn/linear.h"

namespace espalier::nn {

class CrossAttention {
 public:
  // `name` is the path of the layer's parameters ("layers.3.inter_attention"), `layer` its number in the whole model.
  // Parameters, as Megatron's: "<name>.query" [heads * head size, h], "<name>.key_value" [groups * 2 * head size, h of
  // the other sequence], columns as kernels/heads.h says, and "<name>.dense" [h, heads * head size]; shape.qkv_bias is
  // of the first two. There are no rotary positions and no norms of heads here.
  CrossAttention(const LayerBuilder& builder, const std::string& name, int64_t layer, const AttentionShape& shape);

  // residual + dropout(dense(attention(query(x), key_value(encoded)))); x, residual: [S, b, h], encoded: [S of the
  // other sequence, b, its h]. What the queries see: context.cross_attention. If that has a cache, the layer's entry
  // there keeps key_value(encoded) from the first call on, and later calls do not look at `encoded`. If it has pages,
  // they hold the keys and values, and `encoded` is not looked at.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& encoded, const at::Tensor& residual,
                     const ForwardContext& context) const;
  // key_value(encoded), as kernels::cross_attention and kernels::fill_pages take it.
  at::Tensor keys_and_values(const at::Tensor& encoded) const { return key_value_.forward(encoded); }
  void visit(tensor::ParamVisitor& visitor);

 private:
  at::Tensor keys_and_values(const at::Tensor& encoded, tensor::KeyValueCache* cache) const;
  at::Tensor attend(const at::Tensor& x, const at::Tensor& encoded, const tensor::AttentionContext& context) const;

  ColumnLinear query_, key_value_;
  RowLinear dense_;
  std::string name_;
  int64_t layer_;
  kernels::Heads heads_;  // of this rank
  int64_t first_head_;
  tensor::GradQueue& queue_;
};

}  // namespace espalier::nn
