// gelu(x + bias), Hendrycks and Gimpel 2016: with tanh (Megatron's default, 0.79788456 and 0.044715) or exact (erf).
#pragma once

#include <ATen/core/Tensor.h>

#include "spec/gpt.h"
#include "tensor/param.h"

namespace espalier::kernels {

// x: [..., n], compute type, contiguous; bias: [n]. Computed in fp32, rounded once. Keeps x for backward.
// bias.grad += column sums of the input gradient, in fp32.
at::Tensor bias_gelu(const at::Tensor& x, tensor::Param& bias, spec::Activation activation, tensor::GradQueue& queue);

}  // namespace espalier::kernels
