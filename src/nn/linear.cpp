#include "nn/linear.h"

#include "dist/collectives.h"
#include "kernels/linear.h"
#include "tensor/observe.h"

namespace espalier::nn {

ColumnLinear::ColumnLinear(const LayerBuilder& builder, const std::string& name, Bias bias)
    : weight_(builder.params.at(name + ".weight")),
      bias_(bias == Bias::kNone ? nullptr : &builder.params.at(name + ".bias")),
      queue_(builder.params.grad_queue()),
      ranks_(builder.grid.tensor),
      sequence_parallel_(builder.sequence_parallel),
      fp8_(builder.fp8),
      mode_(bias) {}

at::Tensor ColumnLinear::forward(const at::Tensor& x) const {
  const at::Tensor whole = sequence_parallel_ ? dist::gather_sequence(x, ranks_) : dist::copy_to_ranks(x, ranks_);
  tensor::Param* const added = mode_ == Bias::kAdded ? bias_ : nullptr;
  return tensor::observed(weight_, kernels::linear(whole, weight_, added, queue_, fp8_));
}

void ColumnLinear::visit(tensor::ParamVisitor& visitor) {
  visitor.param("weight", weight_);
  if (bias_ != nullptr) visitor.param("bias", *bias_);
}

RowLinear::RowLinear(const LayerBuilder& builder, const std::string& name, bool has_bias)
    : weight_(builder.params.at(name + ".weight")),
      bias_(has_bias ? &builder.params.at(name + ".bias") : nullptr),
      queue_(builder.params.grad_queue()),
      ranks_(builder.grid.tensor),
      sequence_parallel_(builder.sequence_parallel),
      fp8_(builder.fp8) {}

at::Tensor RowLinear::forward(const at::Tensor& x) const {
  const at::Tensor part = kernels::linear(x, weight_, nullptr, queue_, fp8_);
  return tensor::observed(
      weight_, sequence_parallel_ ? dist::sum_and_split_sequence(part, ranks_) : dist::sum_over_ranks(part, ranks_));
}

void RowLinear::visit(tensor::ParamVisitor& visitor) {
  visitor.param("weight", weight_);
  if (bias_ != nullptr) visitor.param("bias", *bias_);
}

}  // namespace espalier::nn
