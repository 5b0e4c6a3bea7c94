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

void check_tensors(const spec::OptimizerKind& kind, const OptimizerTensors& tensors) {
  const at::Tensor &master = tensors.master, &value = tensors.value;
  const std::vector<at::Tensor>& states = tensors.states;
  ESPALIER_CHECK(states.size() == kind.states.size(), states.size(), " states for ", kind.name());
  const auto check = [&](const at::Tensor& tensor) {
    check_fp32(tensor);
    ESPALIER_CHECK(tensor.numel() == master.numel(), tensor.numel(), " elements for ", master.numel());
  };
  for (const at::Tensor* tensor : {&master, &tensors.grad}) check(*tensor);
  for (const at::Tensor& state : states) check_state(state, master.numel());
  ESPALIER_CHECK(!has_stored_states(tensors) || tensors.rounding != nullptr, "no rule to round by");
  ESPALIER_CHECK(value.is_contiguous() && value.numel() == master.numel(), value.numel(), " values for ",
                 master.numel());
}

void update_on_cpu(const spec::OptimizerKind& kind, const OptimizerUpdate& update) {
  const OptimizerTensors& tensors = update.tensors;
  const int64_t count = tensors.master.numel();
  const OptimizerKernels& kernels = row_kernels(tensors.value.scalar_type()).update;
  if (has_stored_states(tensors)) {
    StoredElements args = stored_elements(kind, tensors, update.constants);
    args.keys = round_keys(tensors.rounding->key);
    constexpr int64_t kBlock = spec::kMomentBlock;
    at::parallel_for(0, (count + kBlock - 1) / kBlock, kGrain / kBlock, [&](int64_t first, int64_t last) {
      update_runs(args, tensors.rounding->runs, first * kBlock, std::min(last * kBlock, count),
                  kernels.of_stored[static_cast<int>(kind.type)]);
    });
    return;
  }
  const OptimizerElements args = optimizer_elements(tensors, update.constants);
  const auto kernel = kernels.of[static_cast<int>(kind.type)];
  at::parallel_for(0, count, kGrain, [&](int64_t first, int64_t last) { kernel(args, first, last); });
}

}  // namespace

at::Tensor runs_tensor(const std::vector<spec::Extent>& extents, at::Device device) {
  at::Tensor runs = at::empty({static_cast<int64_t>(extents.size()), 3}, at::kLong);
  int64_t* to = runs.mutable_data_ptr<int64_t>();
  for (const spec::Extent& extent : extents)
    for (const int64_t number : {extent.local_begin, extent.global_begin, extent.count}) *to++ = number;
  return runs.to(device);
}

void optimizer_update(const spec::OptimizerKind& kind, const std::vector<OptimizerUpdate>& updates) {
  const WorkSpan span(Work::kOptimizer, "update");
  for (const OptimizerUpdate& update : updates) check_tensors(kind, update.tensors);
  if (updates.empty()) return;
  if (const DeviceOps* device = device_ops(updates[0].tensors.master)) return device->optimizer_update(kind, updates);
  for (const OptimizerUpdate& update : updates) update_on_cpu(kind, update);
}

std::vector<Measured> measure(const std::vector<Measure>& of) {
  const WorkSpan span(Work::kOptimizer, "measures");
  for (const Measure& one : of) check_fp32(one.values);
  if (of.empty()) return {};
  if (const DeviceOps* device = device_ops(of[0].values)) return device->measure(of);
  const RowKernels& kernels = row_kernels();
  std::vector<Measured> result;
  for (const Measure& one : of)
    result.push_back({.sum_of_squares = one.squares ? total(one.values, kernels.sum_of_squares) : 0,
                      .num_zeros = one.zeros ? total(one.values, kernels.count_zeros) : 0,
                      .num_not_finite = one.not_finite ? total(one.values, kernels.count_not_finite) : 0});
  return result;
}

}  // namespace espalier::kernels
