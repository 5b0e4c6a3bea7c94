// Ops that meet a residual stream in fp32 with a shorter compute type (--fp32-residual-connection): what has
// the compute type is widened for them, and what leaves the stream is rounded once.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::kernels {

// `values`, itself where it has the type of `like` already.
inline at::Tensor as(const at::Tensor& like, const at::Tensor& values) { return values.to(like.scalar_type()); }

// Whether a stream is of the compute type, which is that of `weight`, or of fp32.
inline bool may_pass(const at::Tensor& stream, const at::Tensor& weight) {
  return stream.scalar_type() == weight.scalar_type() || stream.scalar_type() == at::kFloat;
}

}  // namespace espalier::kernels
