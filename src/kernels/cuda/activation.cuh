// What the kernels of bias and activation (kernels/activation.h) share.
#pragma once

#include "kernels/cuda/element_math.h"
#include "kernels/cuda/vectors.cuh"

namespace espalier::cuda {

template <class T, bool kWhole>
__device__ inline void load_biased(const void* x, const void* bias, int64_t at, int64_t column, int64_t left,
                                   float (&values)[kTaken<T, kWhole>]) {
  const auto pack = load_some<kWhole, kTaken<T, kWhole>>(static_cast<const T*>(x) + at, left);
  for (int i = 0; i < kTaken<T, kWhole>; ++i) values[i] = widen(pack.of[i]);
  if (bias == nullptr) return;
  const auto added = load_some<kWhole, kTaken<T, kWhole>>(static_cast<const T*>(bias) + column, left);
  for (int i = 0; i < kTaken<T, kWhole>; ++i) values[i] += widen(added.of[i]);
}

// body(F{}) for the function F.
template <class Body>
void with_function(kernels::ActivationFunction function, const Body& body) {
  switch (function) {
    case kernels::ActivationFunction::kGeluTanh: return body(GeluTanh{});
    case kernels::ActivationFunction::kGeluErf: return body(GeluErf{});
    case kernels::ActivationFunction::kRelu: return body(Relu{});
    case kernels::ActivationFunction::kSquaredRelu: return body(SquaredRelu{});
    case kernels::ActivationFunction::kSilu: return body(Silu{});
    case kernels::ActivationFunction::kIdentity: return body(Identity{});
  }
}

}  // namespace espalier::cuda
