// Weights of 8 bits, for models in use: half the memory of bf16, and half of what a step of a text reads of it.
//
// A matrix [out, in] becomes one int8 tensor [out, in + 4]: each row holds its numbers, from -127 to 127, and then an
// fp32 scale. Weight = number * scale, and scale = the row's largest magnitude / 127. What is multiplied with them
// stays as it is: products are sums in fp32.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::kernels {

at::Tensor to_int8_rows(const at::Tensor& weight);
at::Tensor from_int8_rows(const at::Tensor& rows);  // fp32
bool has_int8_rows(const at::Tensor& weight);

// Columns of the matrix, whichever way it is held.
int64_t num_inputs(const at::Tensor& weight);

// row_product() of such a matrix. Its bits are the same on every instruction set.
at::Tensor int8_row_product(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& bias, at::ScalarType result);

}  // namespace espalier::kernels
