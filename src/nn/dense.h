// A linear layer that every tensor rank has whole, and uses on its own rows: of heads that are small compared with the
// layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nn/layer_builder.h"
#include "spec/layers.h"

namespace espalier::nn {

class Dense {
 public:
  // Parameters "<name>.weight" [out, in] and "<name>.bias" [out] of the set, which outlives the layer.
  Dense(const LayerBuilder& builder, const std::string& name);
  at::Tensor forward(const at::Tensor& x) const;                               // [..., in] -> [..., out]
  at::Tensor forward(const at::Tensor& x, spec::Activation activation) const;  // of the same, none that is gated
  void visit(tensor::ParamVisitor& visitor);

 private:
  tensor::Param& weight_;
  tensor::Param& bias_;
  tensor::GradQueue& queue_;
};

}  // namespace espalier::nn
