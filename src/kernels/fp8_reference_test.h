// The rounding of kernels/fp8.h by ATen's types of 8 bits, and the scale by trying one power of two after another.
#pragma once

#include <ATen/ATen.h>

#include <cmath>

#include "spec/fp8.h"

namespace espalier::kernels::fp8_reference {

inline double largest_number(spec::Fp8Format format) { return format == spec::Fp8Format::kE4M3 ? 448 : 57344; }
inline at::ScalarType type_of(spec::Fp8Format format) {
  return format == spec::Fp8Format::kE4M3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
}

// k, from a tensor without infinity and NaN.
inline int scale_of(const at::Tensor& x, spec::Fp8Format format) {
  const double largest = x.numel() == 0 ? 0 : x.detach().to(at::kDouble).abs().max().item<double>();
  int k = 126;
  while (std::ldexp(largest, k) > largest_number(format)) --k;
  return k;
}

inline at::Tensor codes(const at::Tensor& x, spec::Fp8Format format) {
  return (x.detach().to(at::kFloat) * std::ldexp(1.0, scale_of(x, format))).to(type_of(format));
}
// In double.
inline at::Tensor rounded(const at::Tensor& x, spec::Fp8Format format) {
  return codes(x, format).to(at::kDouble) * std::ldexp(1.0, -scale_of(x, format));
}

}  // namespace espalier::kernels::fp8_reference
