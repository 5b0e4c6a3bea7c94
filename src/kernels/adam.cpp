#include "kernels/adam.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kernels/device_ops.h"
#include "kernels/internal/adam_constants.h"
#include "kernels/internal/row_dispatch.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kGrain = 1 << 14;
constexpr int64_t kBlock = 1 << 14;  // elements of one partial result: fixed, so that threads change no bit

void check_fp32(const at::Tensor& values) {
  ESPALIER_CHECK(values.scalar_type() == at::kFloat && values.is_contiguous(), "fp32, contiguous; is ",
                 values.scalar_type(), " ", values.sizes(), " strides ", values.strides());
}

// The results of `measure` over blocks of the tensor, in order.
template <class Result>
Result total(const at::Tensor& values, Result (*measure)(const float*, int64_t)) {
  check_fp32(values);
  const int64_t count = values.numel(), num_blocks = (count + kBlock - 1) / kBlock;
  const float* data = values.const_data_ptr<float>();
  std::vector<Result> parts(static_cast<size_t>(num_blocks));
  at::parallel_for(0, num_blocks, 4, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      parts[block] = measure(data + block * kBlock, std::min(kBlock, count - block * kBlock));
    }
  });
  Result sum = 0;
  for (const Result part : parts) sum += part;
  return sum;
}

}  // namespace

void adam_step(const at::Tensor& master, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
               const at::Tensor& grad, const at::Tensor& value, const AdamStep& step) {
  for (const at::Tensor* tensor : {&master, &exp_avg, &exp_avg_sq, &grad}) {
    check_fp32(*tensor);
    ESPALIER_CHECK(tensor->numel() == master.numel(), tensor->numel(), " elements for ", master.numel());
  }
  ESPALIER_CHECK(value.is_contiguous() && value.numel() == master.numel(), value.numel(), " values for ",
                 master.numel());
  ESPALIER_CHECK(step.step >= 1, "step ", step.step);
  if (const DeviceOps* device = device_ops(master))
    return device->adam_step(master, exp_avg, exp_avg_sq, grad, value, step);
  AdamElements args = adam_constants(step);
  args.master = master.data_ptr<float>();
  args.exp_avg = exp_avg.data_ptr<float>();
  args.exp_avg_sq = exp_avg_sq.data_ptr<float>();
  args.grad = grad.const_data_ptr<float>();
  args.value = value.const_data_ptr() == master.const_data_ptr() ? nullptr : value.data_ptr();
  const auto kernel = row_kernels(value.scalar_type()).adam;
  at::parallel_for(0, master.numel(), kGrain, [&](int64_t first, int64_t last) { kernel(args, first, last); });
}

double sum_of_squares(const at::Tensor& values) {
  if (const DeviceOps* device = device_ops(values)) return device->sum_of_squares(values);
  return total(values, row_kernels().sum_of_squares);
}

int64_t count_zeros(const at::Tensor& values) {
  if (const DeviceOps* device = device_ops(values)) return device->count_zeros(values);
  return total(values, row_kernels().count_zeros);
}

bool all_finite(const at::Tensor& values) {
  if (const DeviceOps* device = device_ops(values)) return device->all_finite(values);
  return total(values, row_kernels().count_not_finite) == 0;
}

}  // namespace espalier::kernels
