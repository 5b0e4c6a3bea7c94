// kernels/linear.h for operands that are rounded to fp8 (kernels/fp8.h) before each of the three products.
//
//   y = Q(x) Q(W)^T (+ b),  dx = Q(dy) Q(W),  dW += Q(dy)^T Q(x),  db += column sums of dy
//
// Sums are fp32 as in the layer without; the bias's gradient is of dy as it came. Q(x) is kept for backward, Q(W)
// computed again there.
#pragma once

#include <ATen/core/Tensor.h>

#include "spec/fp8.h"
#include "tensor/param.h"

namespace espalier::kernels {

// What kernels::linear has checked: x and weight bf16. fp8: not kNone.
at::Tensor fp8_linear(const at::Tensor& x, tensor::Param& weight, tensor::Param* bias, tensor::GradQueue& queue,
                      spec::Fp8 fp8);

}  // namespace espalier::kernels
