#include "nn/linear.h"

#include "kernels/linear.h"

namespace espalier::nn {

ColumnLinear::ColumnLinear(tensor::ParamSet& params, const std::string& name, Bias bias)
    : weight_(params.at(name + ".weight")),
      bias_(params.at(name + ".bias")),
      queue_(params.grad_queue()),
      mode_(bias) {}

at::Tensor ColumnLinear::forward(const at::Tensor& x) const {
  return kernels::linear(x, weight_, mode_ == Bias::kAdded ? &bias_ : nullptr, queue_);
}

void ColumnLinear::visit(tensor::ParamVisitor& visitor) {
  visitor.param("weight", weight_);
  visitor.param("bias", bias_);
}

RowLinear::RowLinear(tensor::ParamSet& params, const std::string& name)
    : weight_(params.at(name + ".weight")), bias_(params.at(name + ".bias")), queue_(params.grad_queue()) {}

at::Tensor RowLinear::forward(const at::Tensor& x) const { return kernels::linear(x, weight_, nullptr, queue_); }

void RowLinear::visit(tensor::ParamVisitor& visitor) {
  visitor.param("weight", weight_);
  visitor.param("bias", bias_);
}

}  // namespace espalier::nn
