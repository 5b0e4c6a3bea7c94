// Adam and the measures of gradients.
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/elements.cuh"

namespace espalier::cuda {
namespace {

template <class T>
__global__ void adam_kernel(AdamElements args, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const AdamValues now = adam_update(args, {args.master[i], args.exp_avg[i], args.exp_avg_sq[i]}, args.grad[i]);
  args.master[i] = now.master;
  args.exp_avg[i] = now.exp_avg;
  args.exp_avg_sq[i] = now.exp_avg_sq;
  if (args.value != nullptr) store(static_cast<T*>(args.value) + i, now.master);
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

void adam(Element type, const AdamElements& args, int64_t count, Stream stream) {
  with_element(type, [&](auto element) {
    launch("adam", adam_kernel<decltype(element)>, {num_blocks(count, kThreads), kThreads, 0, stream}, args, count);
  });
}

void measure(Measure what, const float* values, int64_t count, double* partials, double* result, Stream stream) {
  launch("measure", measure_kernel, {kMeasureParts, kThreads, 0, stream}, what, values, count, partials);
  launch("finish_measure", finish_kernel, {1, kThreads, 0, stream}, partials, result);
}

}  // namespace espalier::cuda
