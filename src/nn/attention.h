// Self-attention with its projections, dropout and residual addition.
//
// Tensor ranks hold a range of the heads. Context ranks hold a range of the sequence; around the attention itself they
// trade it for a range of the heads (Jacobs et al. 2023), so that the kernel sees whole sequences whatever the layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "kernels/heads.h"
#include "nn/forward_context.h"
#include "nn/linear.h"

namespace espalier::nn {

struct AttentionShape {
  int64_t num_heads = 0, num_groups = 0, head_size = 0;  // of the whole model; a group is a key and a value head
  bool qkv_bias = true, dense_bias = true;
  bool rotary = false, rotary_interleaved = false;
  std::optional<double> head_norm_epsilon;  // queries and keys pass through an RMS norm of each head
};

class SelfAttention {
 public:
  // `name` is the path of the layer's parameters ("layers.3.self_attention"), `layer` its global number.
  SelfAttention(const LayerBuilder& builder, const std::string& name, int64_t layer, const AttentionShape& shape);
  // residual + dropout(dense(attention(qkv(x)))); x, residual: [S, b, h]. Rotary positions: the context's.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, const ForwardContext& context) const;
  void visit(tensor::ParamVisitor& visitor);

 private:
  void add_logits(const LayerBuilder& builder, const std::string& name);
  at::Tensor prepare(at::Tensor qkv, const ForwardContext& context) const;

  ColumnLinear query_key_value_;
  RowLinear dense_;
  std::string name_;
  int64_t layer_;
  AttentionShape shape_;
  kernels::Heads heads_;  // of this rank, while it attends
  int64_t first_head_;
  spec::AttentionBackend backend_;
  tensor::Param* query_norm_ = nullptr;
  tensor::Param* key_norm_ = nullptr;
  tensor::LogitMaxima* logit_maxima_ = nullptr;
  at::Tensor max_logits_;  // of the tensor rank's query heads, where there are maxima
  const dist::Group& context_ranks_;
  tensor::GradQueue& queue_;
};

}  // namespace espalier::nn
