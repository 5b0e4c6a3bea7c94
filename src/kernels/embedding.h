// Rows of a table by id.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensor/param.h"

namespace espalier::kernels {

// ids: [b, s] int64, each 0 <= id < rows (the loader has checked them); weight: [rows, h]. Result [s, b, h].
// weight.grad rows += the gradients, in fp32, in a fixed order of addition for any number of threads.
// The result requires a gradient (when gradients are enabled) although no input does.
at::Tensor embedding(const at::Tensor& ids, tensor::Param& weight, tensor::GradQueue& queue);

}  // namespace espalier::kernels
