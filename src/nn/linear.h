// Linear layers, named for the side on which tensor parallelism splits the weight.
//
// ColumnLinear splits its outputs (rows of [out, in]) and adds its own bias, if it has one. RowLinear splits its
// inputs; its bias is added once, behind the sum over ranks, by whoever fuses it with what follows (bias_dropout_add).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "tensor/param_set.h"

namespace espalier::nn {

class ColumnLinear {
 public:
  enum class Bias { kAdded, kLeftToCaller };

  // Parameters "<name>.weight" [out, in] and "<name>.bias" [out] of the set, which outlives the layer.
  ColumnLinear(tensor::ParamSet& params, const std::string& name, Bias bias);
  at::Tensor forward(const at::Tensor& x) const;  // [..., in] -> [..., out/tp]
  tensor::Param& bias() const { return bias_; }
  void visit(tensor::ParamVisitor& visitor);

 private:
  tensor::Param& weight_;
  tensor::Param& bias_;
  tensor::GradQueue& queue_;
  Bias mode_;
};

class RowLinear {
 public:
  RowLinear(tensor::ParamSet& params, const std::string& name);
  at::Tensor forward(const at::Tensor& x) const;  // [..., in/tp] -> [..., out], without the bias
  tensor::Param& bias() const { return bias_; }
  void visit(tensor::ParamVisitor& visitor);

 private:
  tensor::Param& weight_;
  tensor::Param& bias_;
  tensor::GradQueue& queue_;
};

}  // namespace espalier::nn
