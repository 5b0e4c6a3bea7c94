// The three products of kernels/matmul.h for bf16 on machines with bf16 instructions: blocking, packing and threads
// around the inner parts of matmul_bf16.h.
//
// One operand is packed whole (the weights, or a block of activations), the other is read where it lies. What a thread
// reads again and again fits its share of the second-level cache (kCacheBytes).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/matmul_bf16.h"

namespace espalier::kernels {

// The kernels of the instruction set in force; nullptr if it has no bf16 products.
const Bf16Kernels* bf16_kernels();

// B, packed: panels of kPanel columns, one after the other.
struct PackedB {
  at::Tensor values;
  int64_t depth = 0;    // padded
  int64_t columns = 0;  // not padded
  const uint16_t* panel(int64_t column) const;  // of the panel that begins with that column
};
PackedB pack_columns(const at::Tensor& weight);  // B = weight^T, weight [columns, depth]
PackedB pack_rows(const at::Tensor& weight);     // B = weight, [depth, columns]

// As the functions of kernels/matmul.h of these names.
at::Tensor blocked_forward(const Bf16Kernels& kernels, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor blocked_input_grad(const Bf16Kernels& kernels, const at::Tensor& dy, const at::Tensor& weight);
void blocked_weight_grad(const Bf16Kernels& kernels, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad);

}  // namespace espalier::kernels
