// Normalisation over the hidden dimension: layer norm, or RMS norm, which has no bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nn/layer_builder.h"
#include "spec/layers.h"

namespace espalier::nn {

class Norm {
 public:
  Norm(const LayerBuilder& builder, const std::string& name, spec::Normalization kind, double epsilon);
  at::Tensor forward(const at::Tensor& x) const;  // [..., h] -> [..., h]
  void visit(tensor::ParamVisitor& visitor);

 private:
  tensor::Param& weight_;
  tensor::Param* bias_;  // nullptr for an RMS norm
  tensor::GradQueue& queue_;
  double epsilon_;
};

}  // namespace espalier::nn
