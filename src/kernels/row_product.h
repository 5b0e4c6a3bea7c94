// y = x W^T (+ b) for models in use: what a row becomes depends on that row alone, to the last bit (but for which
// NaN a NaN is). Not on how many rows there are, on its neighbours, or on the number of threads; only on the
// instruction set.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::kernels {

// x [t, k] * weight^T [k, n] (+ bias [n], unless undefined) -> [t, n] of type `result`: that of x, or fp32. x, weight
// and bias have one compute type, are contiguous and on the CPU. Each element is a sum over k in fp32, in an order that
// depends on k alone (of bf16 on machines with AVX512-BF16 or AMX by their instructions, which take denormal numbers
// for zeros), to which the bias is added, and is rounded once. A weight may be in 8 bits instead (int8_weights.h).
at::Tensor row_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::ScalarType result);

}  // namespace espalier::kernels
