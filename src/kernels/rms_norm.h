// y = x / sqrt(mean(x^2) + epsilon) * weight over the last dimension (Zhang and Sennrich, 2019).
#pragma once

#include <ATen/core/Tensor.h>

#include "tensor/param.h"

namespace espalier::kernels {

// x: [..., hidden], compute type or fp32, contiguous; weight: [hidden]. Statistics and sums in fp32, result in the
// compute type, rounded once; the gradient of x has the type of x.
// Keeps for backward: x, and 1/sqrt(mean square + epsilon) of every row (fp32).
// weight.grad += its gradient in fp32, through `queue`.
at::Tensor rms_norm(const at::Tensor& x, tensor::Param& weight, double epsilon, tensor::GradQueue& queue);

}  // namespace espalier::kernels
