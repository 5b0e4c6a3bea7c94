// Rounds a tensor to the numbers of an fp8 format: what a linear layer multiplies with --fp8-format.
//
// One scale for the tensor, from its own largest magnitude (spec/fp8.h has the formats and the formula). The result is
// bf16, which holds those numbers exactly, so that products of them are ordinary bf16 products: on a machine without
// fp8 the training is the same, and as fast as bf16's but for the rounding. The same bits on every instruction set and
// with any number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include "spec/fp8.h"

namespace espalier::kernels {

// x: bf16, contiguous, on the CPU, of any shape; may be empty. Infinity and NaN become NaN.
at::Tensor round_to_fp8(const at::Tensor& x, spec::Fp8Format format);

}  // namespace espalier::kernels
