// Matrix products by cublasLt (light_product.h) on the current stream, or by cuBLAS where that has no algorithm:
// operands of one type (fp32, bf16, fp16), sums in fp32, results in the type of `to`, rounded once. TF32 and sums in 16
// bits are off. Everything is row-major and contiguous.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::cuda {

// to [m, n] = a [m, k] b [k, n], or to += a b.
void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to, bool add = false);
// to [m, n] = a [m, k] b^T, b [n, k].
void multiply_transposed(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to, bool add = false);
// to [m, n] = a [m, k] b^T + bias [n], of the type of `to`, on each row.
void multiply_transposed_with_bias(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
                                   const at::Tensor& to);
// to [m, n] += a^T b, a [k, m], b [k, n].
void add_transposed_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& to);

}  // namespace espalier::cuda
