#include "kernels/internal/row_dispatch.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/device_ops.h"

namespace espalier::kernels {
namespace {
constexpr int64_t kMaxBlocks = 128, kMinRowsPerBlock = 16;
constexpr int64_t kMinElementsPerThread = 1 << 14;
}  // namespace

const RowKernels& row_kernels() {
  const CpuIsa isa = cpu_isa();
#ifdef __aarch64__
  return isa >= CpuIsa::kNeon ? neon::row_kernels() : generic::row_kernels();
#else
  if (isa >= CpuIsa::kAvx512) return avx512::row_kernels();
  return isa >= CpuIsa::kAvx2 ? avx2::row_kernels() : generic::row_kernels();
#endif
}

const TypedRowKernels& row_kernels(at::ScalarType compute_type) {
  const RowKernels& kernels = row_kernels();
  if (compute_type == at::kBFloat16) return kernels.bf16;
  if (compute_type == at::kHalf) return kernels.fp16;
  ESPALIER_CHECK(compute_type == at::kFloat, "compute type ", compute_type);
  return kernels.fp32;
}

PhiloxRoundKeys round_keys(tensor::PhiloxKey key) {
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  PhiloxRoundKeys keys;
  for (uint32_t round = 0; round < 10; ++round) {
    keys.first[round] = key.word[0] + round * kWeyl0;
    keys.second[round] = key.word[1] + round * kWeyl1;
  }
  return keys;
}

RowBlocks::RowBlocks(int64_t rows)
    : num_rows(rows),
      rows_per_block(std::max(kMinRowsPerBlock, (rows + kMaxBlocks - 1) / kMaxBlocks)),
      num_blocks((rows + rows_per_block - 1) / rows_per_block) {}

void for_each_block(const RowBlocks& blocks, int64_t columns,
                    const std::function<void(int64_t block, int64_t first, int64_t last)>& work) {
  const int64_t elements_per_block = std::max<int64_t>(1, blocks.rows_per_block * columns);
  const int64_t grain = std::max<int64_t>(1, kMinElementsPerThread / elements_per_block);
  at::parallel_for(0, blocks.num_blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * blocks.rows_per_block;
      work(block, first, std::min(blocks.num_rows, first + blocks.rows_per_block));
    }
  });
}

ColumnSums::ColumnSums(const RowBlocks& blocks, int64_t count, int64_t columns)
    : columns_(columns),
      partials_(at::empty({blocks.num_blocks, count, columns}, at::TensorOptions().dtype(at::kFloat))) {}

float* ColumnSums::partial(int64_t block, int64_t index) {
  return partials_.data_ptr<float>() + (block * partials_.size(1) + index) * columns_;
}

at::Tensor ColumnSums::total() const {
  const int64_t width = partials_.size(1) * columns_;
  at::Tensor sums = at::zeros({partials_.size(1), columns_}, partials_.options());
  if (partials_.size(0) == 0) return sums;
  const RowKernels& kernels = row_kernels();
  at::parallel_for(0, width, kMinElementsPerThread / partials_.size(0) + 1, [&](int64_t first, int64_t last) {
    kernels.add_partials(partials_.const_data_ptr<float>(), partials_.size(0), width, first, last,
                         sums.data_ptr<float>());
  });
  return sums;
}

at::Tensor column_sums(const at::Tensor& x) {
  ESPALIER_CHECK(x.dim() >= 1 && x.is_contiguous(), x.sizes(), " strides ", x.strides());
  if (const DeviceOps* device = device_ops(x)) return device->column_sums(x);
  const int64_t columns = x.size(-1);
  const RowBlocks blocks(columns == 0 ? 0 : x.numel() / columns);
  ColumnSums sums(blocks, 1, columns);
  const auto kernel = row_kernels(x.scalar_type()).column_sums;
  for_each_block(blocks, columns, [&](int64_t block, int64_t first, int64_t last) {
    kernel(x.const_data_ptr(), columns, first, last, sums.partial(block));
  });
  return sums.total()[0];
}

void push_grad(tensor::GradQueue& queue, tensor::Param& param, const at::Tensor& sum) {
  if (!param.has_grad()) return;
  queue.push(param, [&param, sum] { param.grad.add_(sum); });
}

}  // namespace espalier::kernels
