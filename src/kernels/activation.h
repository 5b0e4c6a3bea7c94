// The activation of a feed-forward layer with the bias before it, plain or gated.
//
// Plain: f(x + bias) with f
//   kGeluTanh, kGeluErf  GELU (Hendrycks and Gimpel, 2016), with tanh (Megatron's default) or exact
//   kRelu, kSquaredRelu  max(x, 0), and its square (So et al., 2021)
//   kSilu                x sigmoid(x)
// Gated (Shazeer, 2020): f(a) b of the two halves a | b of x + bias, the activated one first, with f
//   kSwiglu: SiLU, kGeglu: exact GELU, kGegluTanh: GELU with tanh, kReglu: ReLU, kLiglu: a itself
#pragma once

#include <ATen/core/Tensor.h>

#include "spec/layers.h"
#include "tensor/param.h"

namespace espalier::kernels {

// x: [..., n], or [..., 2n] for a gated activation, compute type, contiguous; bias: as wide as x, or nullptr.
// Result: [..., n]. Computed in fp32, rounded once. Keeps x for backward.
// bias.grad += column sums of the input gradient, in fp32, through `queue`.
at::Tensor bias_activation(const at::Tensor& x, tensor::Param* bias, spec::Activation activation,
                           tensor::GradQueue& queue);

}  // namespace espalier::kernels
