// Linear layers, named for the side on which tensor parallelism splits the weight (Shoeybi et al. 2019).
//
// ColumnLinear splits its outputs (rows of [out, in]) and adds its own bias, if it has one. RowLinear splits its
// inputs; its bias is added once, after the sum over ranks, by whoever fuses it with what follows (bias_dropout_add).
// With sequence parallelism the input of the one is gathered along the sequence, and the output of the other is split.
// Where the builder says fp8, each rank rounds what it multiplies, with scales of its own part.
//
// Legend: S sequence outside tensor-parallel regions (s, or s/tp with sequence parallelism), b micro-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nn/layer_builder.h"

namespace espalier::nn {

class ColumnLinear {
 public:
  enum class Bias { kNone, kAdded, kLeftToCaller };

  // Parameters "<name>.weight" [out, in] and, if it has a bias, "<name>.bias" [out] of the set, which outlives the
  // layer.
  ColumnLinear(const LayerBuilder& builder, const std::string& name, Bias bias);
  at::Tensor forward(const at::Tensor& x) const;  // [S, b, in] -> [s, b, out/tp]
  tensor::Param* bias() const { return bias_; }   // nullptr without
  void visit(tensor::ParamVisitor& visitor);

 private:
  tensor::Param& weight_;
  tensor::Param* bias_;
  tensor::GradQueue& queue_;
  const dist::Group& ranks_;
  bool sequence_parallel_;
  spec::Fp8 fp8_;
  Bias mode_;
};

class RowLinear {
 public:
  RowLinear(const LayerBuilder& builder, const std::string& name, bool has_bias);
  at::Tensor forward(const at::Tensor& x) const;  // [s, b, in/tp] -> [S, b, out], without the bias
  tensor::Param* bias() const { return bias_; }   // nullptr without
  void visit(tensor::ParamVisitor& visitor);

 private:
  tensor::Param& weight_;
  tensor::Param* bias_;
  tensor::GradQueue& queue_;
  const dist::Group& ranks_;
  bool sequence_parallel_;
  spec::Fp8 fp8_;
};

}  // namespace espalier::nn
