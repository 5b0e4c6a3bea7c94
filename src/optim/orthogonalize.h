// The nearest orthogonal matrix to a direction, near enough: Muon's Newton-Schulz iterations (Jordan et al. 2024,
// https://kellerjordan.github.io/posts/muon/).
#pragma once

#include <ATen/core/Tensor.h>

#include "spec/optimizer_settings.h"

namespace espalier::optim {

// `direction`: [rows, columns], fp32. With U S V^T for it, the result, fp32 as well, is U S' V^T with S' near 1: the
// direction is divided by its Frobenius norm, and num_ns_steps times X = a X + (b X X^T + c (X X^T)^2) X, by products
// of type `compute` (fp32, or bf16 with fp32 sums). A direction of zeros stays as it is.
at::Tensor orthogonalized(const at::Tensor& direction, at::ScalarType compute, const spec::OptimizerSettings& settings);

// What the result is multiplied by for a matrix of that shape.
double muon_scale(int64_t rows, int64_t columns, const spec::OptimizerSettings& settings);

}  // namespace espalier::optim
