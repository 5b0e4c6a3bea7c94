// Updates of optimizers, and the measures of gradients.
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/elements.cuh"
#include "spec/optimizers/list.h"

namespace espalier::cuda {
namespace {

template <class Optimizer, class T>
__global__ void update_kernel(OptimizerElements args, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  typename Optimizer::Constants by;
  memcpy(&by, &args.constants, sizeof(by));
  spec::OptimizerElement<Lane> element;
  element.weight = {args.master[i]};
  for (int state = 0; state < Optimizer::kNumStates; ++state) element.states[state] = {args.states[state][i]};
  element.grad = {args.grad[i]};
  Optimizer::update(element, by);
  for (int state = 0; state < Optimizer::kNumStates; ++state) args.states[state][i] = element.states[state].x;
  if constexpr (Optimizer::kSecondPass != spec::SecondPass::kNone) {
    args.grad[i] = element.grad.x;
    return;
  }
  args.master[i] = element.weight.x;
  if constexpr (!Optimizer::kAverages) element.value = element.weight;
  if (args.value != nullptr) store(static_cast<T*>(args.value) + i, element.value.x);
}

template <class T, class... Optimizer>
void launch_update(spec::OptimizerList<Optimizer...>, spec::OptimizerType which, const OptimizerElements& args,
                   int64_t count, Stream stream) {
  const auto launch_if = [&](spec::OptimizerType type, auto kernel) {
    if (type == which)
      launch("optimizer_update", kernel, {num_blocks(count, kThreads), kThreads, 0, stream}, args, count);
  };
  (launch_if(Optimizer::kType, update_kernel<Optimizer, T>), ...);
}

__device__ double measured(Measure what, float value) {
  switch (what) {
    case Measure::kSquares: return static_cast<double>(value) * value;
    case Measure::kZeros: return value == 0;
    case Measure::kNotFinite: return !(value - value == 0);  // NaN for infinity and NaN
  }
  return 0;
}

// Always kMeasureParts blocks, so that the order of the sum depends on the count alone.
__global__ void measure_kernel(Measure what, const float* values, int64_t count, double* partials) {
  double sum = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += kMeasureParts * kThreads)
    sum += measured(what, values[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void finish_kernel(const double* partials, double* result) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < kMeasureParts; i += kThreads) sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = sum;
}

}  // namespace

void optimizer_update(spec::OptimizerType optimizer, Element type, const OptimizerElements& args, int64_t count,
                      Stream stream) {
  with_element(type, [&](auto element) {
    launch_update<decltype(element)>(spec::Optimizers(), optimizer, args, count, stream);
  });
}

void measure(Measure what, const float* values, int64_t count, double* partials, double* result, Stream stream) {
  launch("measure", measure_kernel, {kMeasureParts, kThreads, 0, stream}, what, values, count, partials);
  launch("finish_measure", finish_kernel, {1, kThreads, 0, stream}, partials, result);
}

}  // namespace espalier::cuda
