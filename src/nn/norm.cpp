#include "nn/norm.h"

#include "kernels/layer_norm.h"
#include "kernels/rms_norm.h"
#include "tensor/observe.h"

namespace espalier::nn {

Norm::Norm(const LayerBuilder& builder, const std::string& name, spec::Normalization kind, double epsilon)
    : weight_(builder.params.at(name + ".weight")),
      bias_(kind == spec::Normalization::kLayerNorm ? &builder.params.at(name + ".bias") : nullptr),
      queue_(builder.params.grad_queue()),
      epsilon_(epsilon) {}

at::Tensor Norm::forward(const at::Tensor& x) const {
  return tensor::observed(weight_, bias_ != nullptr ? kernels::layer_norm(x, weight_, *bias_, epsilon_, queue_)
                                                    : kernels::rms_norm(x, weight_, epsilon_, queue_));
}

void Norm::visit(tensor::ParamVisitor& visitor) {
  visitor.param("weight", weight_);
  if (bias_ != nullptr) visitor.param("bias", *bias_);
}

}  // namespace espalier::nn
