// A table of vectors, looked up by token id or by position.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "tensor/param_set.h"

namespace espalier::nn {

class Embedding {
 public:
  Embedding(tensor::ParamSet& params, const std::string& name);
  at::Tensor forward(const at::Tensor& ids) const;  // [b, s] int64 -> [s, b, h]
  tensor::Param& weight() const { return weight_; }
  void visit(tensor::ParamVisitor& visitor);

 private:
  tensor::Param& weight_;
  tensor::GradQueue& queue_;
};

}  // namespace espalier::nn
