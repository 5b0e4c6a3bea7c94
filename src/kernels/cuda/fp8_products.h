// Products of fp8 codes by cublasLt, sums in fp32, on the current stream.
//
// Tensor cores take codes of which both matrices lie along the summed dimension, in sizes that are multiples of 16,
// from compute capability 8.9 on. Where that does not hold the codes are widened to bf16, exactly, and multiplied as
// those are (products.h). Parts of sums are moved to fp32 registers as often as cublasLt offers ("fast accumulation" is
// off).
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::cuda {

// Float8_e4m3fn or Float8_e5m2 [rows, columns], contiguous, not both factors e5m2; `scale`: fp32 [1] on the device, by
// which values are multiplied.
struct Fp8Factor {
  const at::Tensor& codes;
  const at::Tensor& scale;
};

// to [m, n] = a [m, k] b^T (+ bias [n], of the type of `to`, unless undefined), or to += a b^T; b: [n, k]; `to` bf16,
// or fp32 without a bias. Returns why bf16 was multiplied, nullptr where it was not.
const char* multiply_codes(const Fp8Factor& a, const Fp8Factor& b, const at::Tensor& bias, const at::Tensor& to,
                           bool add);

}  // namespace espalier::cuda
