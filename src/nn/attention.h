// Self-attention with its projections, dropout and residual addition.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nn/forward_context.h"
#include "nn/linear.h"

namespace espalier::nn {

class SelfAttention {
 public:
  // `name` is the path of the layer's parameters ("layers.3.self_attention"), `layer` its global number.
  SelfAttention(tensor::ParamSet& params, const std::string& name, int64_t layer, int64_t num_heads);
  // residual + dropout(dense(attention(qkv(x)))); x, residual: [s, b, h].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, const ForwardContext& context) const;
  void visit(tensor::ParamVisitor& visitor);

 private:
  ColumnLinear query_key_value_;
  RowLinear dense_;
  std::string name_;
  int64_t layer_, num_heads_;
  tensor::GradQueue& queue_;
};

}  // namespace espalier::nn
