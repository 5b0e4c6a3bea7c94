// y = (x - mean) / sqrt(variance + epsilon) * weight + bias over the last dimension (Ba et al., 2016).
#pragma once

#include <ATen/core/Tensor.h>

#include "tensor/param.h"

namespace espalier::kernels {

// x: [..., hidden], compute type or fp32, contiguous. Statistics and sums in fp32, result in the compute type; the
// gradient of x has the type of x.
// Keeps for backward: x, mean and 1/sqrt(variance + epsilon) of every row (fp32).
at::Tensor layer_norm(const at::Tensor& x, tensor::Param& weight, tensor::Param& bias, double epsilon,
                      tensor::GradQueue& queue);

}  // namespace espalier::kernels
