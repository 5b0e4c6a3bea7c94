// Rows of a table, or of one rank's part of a table, by id.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tensor/param.h"

namespace espalier::kernels {

// ids: [b, s] int64; weight: [rows, h], the rows first_row .. first_row + rows - 1 of the vocabulary, possibly none.
// Result [s, b, h]: zeros for an id that is not among them, so that the sum over the ranks is the embedding (the loader
// has checked that every id is in the vocabulary).
// weight.grad rows += the gradients, in fp32, in a fixed order of addition for any number of threads.
// The result requires a gradient (when gradients are enabled) although no input does.
at::Tensor embedding(const at::Tensor& ids, tensor::Param& weight, tensor::GradQueue& queue, int64_t first_row = 0);

// For small tables that are used in fp32, whatever the compute type: ids: [n] int64; weight: [rows, h], all rows.
// Result [h, n] fp32, contiguous; of it and of the gradient the same holds as above, the gradient never rounded.
// The result may be given to recomputed layers as it is: each of them that runs backward adds its part by itself.
at::Tensor embedding_columns(const at::Tensor& ids, tensor::Param& weight, tensor::GradQueue& queue);

}  // namespace espalier::kernels
