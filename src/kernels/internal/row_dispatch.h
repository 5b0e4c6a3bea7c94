// From tensors to the row kernels: which table, how rows are divided, and column sums that are the same bits for any
// number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "kernels/internal/row_kernels.h"
#include "tensor/param.h"
#include "tensor/rng.h"

namespace espalier::kernels {

// The tables of the instruction set in force (base/cpu_isa.h).
const RowKernels& row_kernels();
const TypedRowKernels& row_kernels(at::ScalarType compute_type);

PhiloxRoundKeys round_keys(tensor::PhiloxKey key);

// Rows are divided into blocks by their number alone, never by the number of threads.
struct RowBlocks {
  explicit RowBlocks(int64_t num_rows);
  int64_t num_rows, rows_per_block, num_blocks;
};

// work(block, first row, last row + 1), blocks in parallel; `columns` only decides how many threads are worth it.
void for_each_block(const RowBlocks& blocks, int64_t columns,
                    const std::function<void(int64_t block, int64_t first, int64_t last)>& work);

// fp32 sums over the rows of `count` rows of `columns` each: one partial sum per block, added in the order of blocks.
class ColumnSums {
 public:
  ColumnSums(const RowBlocks& blocks, int64_t count, int64_t columns);
  // Where the partial sum number `index` of a block goes, [columns].
  float* partial(int64_t block, int64_t index = 0);
  // [count, columns]
  at::Tensor total() const;

 private:
  int64_t columns_;
  at::Tensor partials_;  // [blocks, count, columns]
};

// Sums over all dimensions but the last of a contiguous tensor of a compute type: [columns] fp32.
at::Tensor column_sums(const at::Tensor& x);

// Adds `sum` to the gradient of `param` through the queue; nothing for a parameter without one.
void push_grad(tensor::GradQueue& queue, tensor::Param& param, const at::Tensor& sum);

}  // namespace espalier::kernels
