// The feed-forward part of a transformer layer, with its dropout and residual addition.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nn/forward_context.h"
#include "nn/linear.h"
#include "spec/layers.h"

namespace espalier::nn {

class Mlp {
 public:
  // `name` is the path of the layer's parameters ("layers.3.mlp").
  Mlp(const LayerBuilder& builder, const std::string& name, spec::Activation activation, bool has_bias);
  // residual + dropout(dense_4h_to_h(activation(dense_h_to_4h(x)))); x, residual: [S, b, h].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, const ForwardContext& context) const;
  void visit(tensor::ParamVisitor& visitor);

 private:
  ColumnLinear dense_h_to_4h_;
  RowLinear dense_4h_to_h_;
  spec::Activation activation_;
  std::string name_;
  tensor::GradQueue& queue_;
};

}  // namespace espalier::nn
