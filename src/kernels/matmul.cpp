#include "kernels/matmul.h"

#include <ATen/ATen.h>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "base/work_profile.h"
#include "kernels/device_ops.h"
#include "kernels/internal/row_dispatch.h"
#include "kernels/matmul_blocked.h"
#include "kernels/wide_product.h"

namespace espalier::kernels {
namespace {

// With fewer tokens packing the weights costs more than the product: ATen's matrix-vector code reads them once.
constexpr int64_t kMinTokens = 32;

const Bf16Kernels* blocked_kernels_for(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 && x.size(0) >= kMinTokens ? bf16_kernels() : nullptr;
}

// Where oneDNN does not serve short types (fp16 without AVX512-FP16, which comes with AMX; bf16 without AVX-512),
// ATen's own loops reach 14 GFLOP/s a core, fp32 products of widened operands 91. A single row is faster as it is.
bool multiply_wide(const at::Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  if (type == at::kFloat) return true;
  return x.size(0) > 1 && (type == at::kHalf ? cpu_isa() != CpuIsa::kAmx : !multiplies_bf16(cpu_isa()));
}

// a b + bias in the type of a.
at::Tensor wide_result(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  const at::Tensor c = at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kFloat));
  wide_product(a, b, bias, c);
  return c.to(a.scalar_type());
}

void check_operand(const at::Tensor& x) {
  ESPALIER_CHECK(x.dim() == 2 && x.is_contiguous(), "sizes ", x.sizes(), ", strides ", x.strides());
}

}  // namespace

at::Tensor matmul_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  check_operand(x);
  check_operand(weight);
  const WorkSpan span(Work::kProduct, "forward", {x.size(0), weight.size(0), x.size(1)});
  if (const DeviceOps* device = device_ops(x)) return device->matmul_forward(x, weight, bias);
  if (const Bf16Kernels* kernels = blocked_kernels_for(x)) return blocked_forward(*kernels, x, weight, bias);
  if (multiply_wide(x)) return wide_result(x, weight.t(), bias);
  return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
}

at::Tensor matmul_input_grad(const at::Tensor& dy, const at::Tensor& weight) {
  check_operand(dy);
  check_operand(weight);
  const WorkSpan span(Work::kProduct, "input gradient", {dy.size(0), weight.size(1), dy.size(1)});
  if (const DeviceOps* device = device_ops(dy)) return device->matmul_input_grad(dy, weight);
  if (const Bf16Kernels* kernels = blocked_kernels_for(dy)) return blocked_input_grad(*kernels, dy, weight);
  if (multiply_wide(dy)) return wide_result(dy, weight, {});
  return at::mm(dy, weight);
}

void matmul_weight_grad(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad, tensor::GradWrite write) {
  check_operand(dy);
  check_operand(x);
  ESPALIER_CHECK(grad.defined() && grad.scalar_type() == at::kFloat && grad.is_contiguous());
  const WorkSpan span(Work::kProduct, "weight gradient", {dy.size(1), x.size(1), dy.size(0)});
  if (const DeviceOps* device = device_ops(x)) {
    if (write == tensor::GradWrite::kOverwrite) grad.zero_();
    return device->matmul_weight_grad(dy, x, grad);
  }
  if (const Bf16Kernels* kernels = blocked_kernels_for(x)) return blocked_weight_grad(*kernels, dy, x, grad, write);
  write_wide_product(dy.t(), x, grad, write);
}

void add_column_sums(const at::Tensor& dy, const at::Tensor& grad) {
  check_operand(dy);
  const WorkSpan span(Work::kActivation, "bias gradient");
  grad.add_(column_sums(dy));
}

}  // namespace espalier::kernels
