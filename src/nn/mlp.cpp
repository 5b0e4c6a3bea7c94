#include "nn/mlp.h"

#include "kernels/activation.h"
#include "kernels/dropout.h"
#include "tensor/observe.h"

namespace espalier::nn {

Mlp::Mlp(const LayerBuilder& builder, const std::string& name, spec::Activation activation, bool has_bias)
    : dense_h_to_4h_(builder, name + ".dense_h_to_4h",
                     has_bias ? ColumnLinear::Bias::kLeftToCaller : ColumnLinear::Bias::kNone),
      dense_4h_to_h_(builder, name + ".dense_4h_to_h", has_bias),
      activation_(activation),
      name_(name),
      queue_(builder.params.grad_queue()) {}

at::Tensor Mlp::forward(const at::Tensor& x, const at::Tensor& residual, const ForwardContext& context) const {
  const at::Tensor inner =
      tensor::observed(name_, ".activation",
                       kernels::bias_activation(dense_h_to_4h_.forward(x), dense_h_to_4h_.bias(), activation_, queue_));
  return tensor::observed(name_, kernels::bias_dropout_add(dense_4h_to_h_.forward(inner), dense_4h_to_h_.bias(),
                                                           residual, context.dropout_site(name_), queue_));
}

void Mlp::visit(tensor::ParamVisitor& visitor) {
  visitor.child("dense_h_to_4h", dense_h_to_4h_);
  visitor.child("dense_4h_to_h", dense_4h_to_h_);
}

}  // namespace espalier::nn
