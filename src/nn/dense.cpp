#include "nn/dense.h"

#include "kernels/activation.h"
#include "kernels/linear.h"

namespace espalier::nn {

Dense::Dense(const LayerBuilder& builder, const std::string& name)
    : weight_(builder.params.at(name + ".weight")),
      bias_(builder.params.at(name + ".bias")),
      queue_(builder.params.grad_queue()) {}

at::Tensor Dense::forward(const at::Tensor& x) const { return kernels::linear(x, weight_, &bias_, queue_); }

at::Tensor Dense::forward(const at::Tensor& x, spec::Activation activation) const {
  return kernels::bias_activation(kernels::linear(x, weight_, nullptr, queue_), &bias_, activation, queue_);
}

void Dense::visit(tensor::ParamVisitor& visitor) {
  visitor.param("weight", weight_);
  visitor.param("bias", bias_);
}

}  // namespace espalier::nn
