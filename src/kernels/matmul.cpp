#include "kernels/matmul.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace espalier::kernels {

at::Tensor matmul_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
}

at::Tensor matmul_input_grad(const at::Tensor& dy, const at::Tensor& weight) { return at::mm(dy, weight); }

void matmul_weight_grad(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad) {
  at::Tensor out = grad;
  out.addmm_(dy.to(at::kFloat).t(), x.to(at::kFloat));
}

void add_column_sums(const at::Tensor& dy, const at::Tensor& grad) {
  at::Tensor out = grad;
  out.add_(at::sum(dy, {0}, /*keepdim=*/false, at::kFloat));
}

}  // namespace espalier::kernels
