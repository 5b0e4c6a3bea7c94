// Layer normalisation over the hidden dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nn/layer_builder.h"

namespace espalier::nn {

class LayerNorm {
 public:
  LayerNorm(const LayerBuilder& builder, const std::string& name, double epsilon);
  at::Tensor forward(const at::Tensor& x) const;  // [..., h] -> [..., h]
  void visit(tensor::ParamVisitor& visitor);

 private:
  tensor::Param& weight_;
  tensor::Param& bias_;
  tensor::GradQueue& queue_;
  double epsilon_;
};

}  // namespace espalier::nn
