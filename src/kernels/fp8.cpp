#include "kernels/fp8.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/work_profile.h"
#include "kernels/internal/row_dispatch.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kRoundingGrain = 1 << 15;  // elements that are worth a thread

uint32_t largest_magnitude_of(const RowKernels& kernels, const Bf16* values, int64_t count) {
  std::atomic<uint32_t> largest = 0;
  at::parallel_for(0, count, kRoundingGrain, [&](int64_t begin, int64_t end) {
    const uint32_t found = kernels.largest_magnitude(values + begin, end - begin);
    uint32_t known = largest;
    while (known < found && !largest.compare_exchange_weak(known, found)) continue;
  });
  return largest;
}

}  // namespace

at::Tensor round_to_fp8(const at::Tensor& x, spec::Fp8Format format) {
  ESPALIER_CHECK(x.is_cpu() && x.scalar_type() == at::kBFloat16 && x.is_contiguous(), x.scalar_type(), " ", x.sizes(),
                 " strides ", x.strides(), " on ", x.device());
  const WorkSpan span(Work::kActivation, "rounding to fp8");
  const RowKernels& kernels = row_kernels();
  const at::Tensor rounded = at::empty_like(x);
  const auto* const values = static_cast<const Bf16*>(x.const_data_ptr());
  auto* const to = static_cast<Bf16*>(rounded.mutable_data_ptr());
  const uint32_t largest = largest_magnitude_of(kernels, values, x.numel());
  const spec::Fp8Grid grid = spec::Fp8Bits<at::BFloat16>::grid_of(largest, format);
  at::parallel_for(0, x.numel(), kRoundingGrain, [&](int64_t begin, int64_t end) {
    kernels.round_to_grid(grid, values + begin, end - begin, to + begin);
  });
  return rounded;
}

}  // namespace espalier::kernels
