// Self-attention with its projections, dropout and residual addition.
//
// Tensor ranks hold a range of the heads. Context ranks hold a range of the sequence; around the attention itself they
// trade it for a range of the heads (Jacobs et al. 2023), so that the kernel sees whole sequences whatever the layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nn/forward_context.h"
#include "nn/linear.h"

namespace espalier::nn {

class SelfAttention {
 public:
  // `name` is the path of the layer's parameters ("layers.3.self_attention"), `layer` its global number.
  SelfAttention(const LayerBuilder& builder, const std::string& name, int64_t layer, int64_t num_heads);
  // residual + dropout(dense(attention(qkv(x)))); x, residual: [S, b, h].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, const ForwardContext& context) const;
  void visit(tensor::ParamVisitor& visitor);

 private:
  ColumnLinear query_key_value_;
  RowLinear dense_;
  std::string name_;
  int64_t layer_;
  int64_t num_heads_, first_head_;  // of this rank, while it attends
  const dist::Group& context_ranks_;
  tensor::GradQueue& queue_;
};

}  // namespace espalier::nn
