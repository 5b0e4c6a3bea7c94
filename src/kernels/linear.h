// y = x W^T (+ b): the linear layer, forward and backward, with fp32 accumulation of the weight gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include "spec/fp8.h"
#include "tensor/param.h"

namespace espalier::kernels {

// x: [..., in], compute type, contiguous. weight: [out, in]. bias: [out], or nullptr. Result [..., out].
// Backward: dx = dy W (returned); weight.grad += dy^T x and bias.grad += column sums of dy in fp32, through `queue`.
// Products accumulate in fp32; with bf16 operands the weight gradient is never rounded to bf16.
// fp8: of bf16 operands, which are rounded to it before they are multiplied (kernels/fp8_linear.h).
at::Tensor linear(const at::Tensor& x, tensor::Param& weight, tensor::Param* bias, tensor::GradQueue& queue,
                  spec::Fp8 fp8 = spec::Fp8::kNone);

}  // namespace espalier::kernels
