#include "kernels/optimizer_update.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/work_profile.h"
#include "kernels/device_ops.h"
#include "kernels/internal/optimizer_elements.h"
#include "kernels/internal/row_dispatch.h"
#include "spec/state_storage.h"
#include "spec/stored_state.h"

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

void check_state(const at::Tensor& state, int64_t count) {
  const at::ScalarType type = state.scalar_type();
  ESPALIER_CHECK((type == at::kFloat || type == at::kBFloat16 || type == at::kByte) && state.is_contiguous(), type);
  const int64_t expected = type == at::kByte ? spec::stored_count(spec::StateType::kFp8, count) : count;
  ESPALIER_CHECK(state.numel() == expected, state.numel(), " stored for ", count);
}

// Elements [first, last), run by run.
void update_runs(const StoredElements& args, const at::Tensor& runs, int64_t first, int64_t last,
                 void (*kernel)(const StoredElements&, int64_t, int64_t, int64_t)) {
  const int64_t* const begin = runs.const_data_ptr<int64_t>();
  int64_t low = 0;  // the last run that begins at `first` or before
  for (int64_t high = runs.size(0); high - low > 1;) {
    const int64_t middle = (low + high) / 2;
    (begin[3 * middle] <= first ? low : high) = middle;
  }
  for (const int64_t* run = begin + 3 * low; first < last; run += 3) {
    const int64_t end = std::min(last, run[0] + run[2]);
    kernel(args, first, end, run[1] + first - run[0]);
    first = end;
  }
}

}  // namespace

at::Tensor runs_tensor(const std::vector<spec::Extent>& extents, at::Device device) {
  at::Tensor runs = at::empty({static_cast<int64_t>(extents.size()), 3}, at::kLong);
  int64_t* to = runs.mutable_data_ptr<int64_t>();
  for (const spec::Extent& extent : extents)
    for (const int64_t number : {extent.local_begin, extent.global_begin, extent.count}) *to++ = number;
  return runs.to(device);
}

void optimizer_update(const spec::OptimizerKind& kind, const OptimizerTensors& tensors,
                      const spec::OptimizerConstants& constants) {
  const WorkSpan span(Work::kOptimizer, "update");
  const at::Tensor &master = tensors.master, &grad = tensors.grad, &value = tensors.value;
  const std::vector<at::Tensor>& states = tensors.states;
  ESPALIER_CHECK(states.size() == kind.states.size(), states.size(), " states for ", kind.name());
  const auto check = [&](const at::Tensor& tensor) {
    check_fp32(tensor);
    ESPALIER_CHECK(tensor.numel() == master.numel(), tensor.numel(), " elements for ", master.numel());
  };
  for (const at::Tensor* tensor : {&master, &grad}) check(*tensor);
  for (const at::Tensor& state : states) check_state(state, master.numel());
  const bool is_stored = has_stored_states(tensors);
  ESPALIER_CHECK(!is_stored || tensors.rounding != nullptr, "no rule to round by");
  ESPALIER_CHECK(value.is_contiguous() && value.numel() == master.numel(), value.numel(), " values for ",
                 master.numel());
  if (const DeviceOps* device = device_ops(master)) return device->optimizer_update(kind, tensors, constants);
  const OptimizerKernels& kernels = row_kernels(value.scalar_type()).update;
  if (is_stored) {
    StoredElements args = stored_elements(kind, tensors, constants);
    args.keys = round_keys(tensors.rounding->key);
    constexpr int64_t kBlock = spec::kMomentBlock;
    at::parallel_for(0, (master.numel() + kBlock - 1) / kBlock, kGrain / kBlock, [&](int64_t first, int64_t last) {
      update_runs(args, tensors.rounding->runs, first * kBlock, std::min(last * kBlock, master.numel()),
                  kernels.of_stored[static_cast<int>(kind.type)]);
    });
    return;
  }
  const OptimizerElements args = optimizer_elements(tensors, constants);
  const auto kernel = kernels.of[static_cast<int>(kind.type)];
  at::parallel_for(0, master.numel(), kGrain, [&](int64_t first, int64_t last) { kernel(args, first, last); });
}

double sum_of_squares(const at::Tensor& values) {
  const WorkSpan span(Work::kOptimizer, "norm");
  if (const DeviceOps* device = device_ops(values)) return device->sum_of_squares(values);
  return total(values, row_kernels().sum_of_squares);
}

int64_t count_zeros(const at::Tensor& values) {
  const WorkSpan span(Work::kOptimizer, "zeros");
  if (const DeviceOps* device = device_ops(values)) return device->count_zeros(values);
  return total(values, row_kernels().count_zeros);
}

bool all_finite(const at::Tensor& values) {
  const WorkSpan span(Work::kOptimizer, "finite values");
  if (const DeviceOps* device = device_ops(values)) return device->all_finite(values);
  return total(values, row_kernels().count_not_finite) == 0;
}

}  // namespace espalier::kernels
