// The three matrix products of a linear layer y = x W^T, of fp32, bf16 or fp16 operands.
//
// Products accumulate in fp32 and are rounded once, to the type of the result. All tensors are two-dimensional and
// contiguous. The same bits for a given instruction set and number of threads.
//
// Letters: t tokens, n outputs, k inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensor/param.h"

namespace espalier::kernels {

// x [t, k] * weight^T [k, n] (+ bias [n], unless undefined) -> [t, n] in the type of x.
at::Tensor matmul_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// dy [t, n] * weight [n, k] -> [t, k] in the type of dy.
at::Tensor matmul_input_grad(const at::Tensor& dy, const at::Tensor& weight);

// grad [n, k] fp32 += dy^T [n, t] * x [t, k], or = that.
void matmul_weight_grad(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad, tensor::GradWrite write);

// grad [n] fp32 += column sums of dy [t, n], in fp32.
void add_column_sums(const at::Tensor& dy, const at::Tensor& grad);

}  // namespace espalier::kernels
