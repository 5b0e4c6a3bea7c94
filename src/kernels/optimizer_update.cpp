#include "kernels/optimizer_update.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kernels/device_ops.h"
#include "kernels/internal/optimizer_elements.h"
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

void optimizer_update(const spec::OptimizerKind& kind, const OptimizerTensors& tensors,
                      const spec::OptimizerConstants& constants) {
  const at::Tensor &master = tensors.master, &grad = tensors.grad, &value = tensors.value;
  const std::vector<at::Tensor>& states = tensors.states;
  ESPALIER_CHECK(states.size() == kind.states.size(), states.size(), " states for ", kind.name());
  const auto check = [&](const at::Tensor& tensor) {
    check_fp32(tensor);
    ESPALIER_CHECK(tensor.numel() == master.numel(), tensor.numel(), " elements for ", master.numel());
  };
  for (const at::Tensor* tensor : {&master, &grad}) check(*tensor);
  for (const at::Tensor& state : states) check(state);
  ESPALIER_CHECK(value.is_contiguous() && value.numel() == master.numel(), value.numel(), " values for ",
                 master.numel());
  if (const DeviceOps* device = device_ops(master)) return device->optimizer_update(kind, tensors, constants);
  OptimizerElements args = optimizer_elements(tensors, constants);
  const auto kernel = row_kernels(value.scalar_type()).update.of[static_cast<int>(kind.type)];
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
