#include "nn/layer_norm.h"

#include "kernels/layer_norm.h"

namespace espalier::nn {

LayerNorm::LayerNorm(const LayerBuilder& builder, const std::string& name, double epsilon)
    : weight_(builder.params.at(name + ".weight")),
      bias_(builder.params.at(name + ".bias")),
      queue_(builder.params.grad_queue()),
      epsilon_(epsilon) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  return kernels::layer_norm(x, weight_, bias_, epsilon_, queue_);
}

void LayerNorm::visit(tensor::ParamVisitor& visitor) {
  visitor.param("weight", weight_);
  visitor.param("bias", bias_);
}

}  // namespace espalier::nn
