// Updates of optimizers, and the measures of gradients.
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/elements.cuh"
#include "spec/optimizers/list.h"
#include "spec/stored_state.h"

namespace espalier::cuda {
namespace {

// Element i, whose states are there.
template <class Optimizer, class T>
__device__ void update_element(spec::OptimizerElement<Lane>& element, const OptimizerElements& args, int64_t i) {
  typename Optimizer::Constants by;
  memcpy(&by, &args.constants, sizeof(by));
  element.weight = {args.master[i]};
  element.grad = {args.grad[i]};
  Optimizer::update(element, by);
  if constexpr (Optimizer::kSecondPass != spec::SecondPass::kNone) {
    args.grad[i] = element.grad.x;
    return;
  }
  args.master[i] = element.weight.x;
  if constexpr (!Optimizer::kAverages) element.value = element.weight;
  if (args.value != nullptr) store(static_cast<T*>(args.value) + i, element.value.x);
}

template <class Optimizer, class T>
__global__ void update_kernel(OptimizerElements args, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  spec::OptimizerElement<Lane> element;
  for (int state = 0; state < Optimizer::kNumStates; ++state) element.states[state] = {args.states[state][i]};
  update_element<Optimizer, T>(element, args, i);
  for (int state = 0; state < Optimizer::kNumStates; ++state) args.states[state][i] = element.states[state].x;
}

using Bits = spec::MomentBits<Lane>;

// The place of an element in its whole parameter.
__device__ int64_t number_of(int64_t i, const int64_t* runs, int64_t num_runs) {
  int64_t low = 0;
  for (int64_t high = num_runs; high - low > 1;) {
    const int64_t middle = (low + high) / 2;
    if (runs[3 * middle] <= i)
      low = middle;
    else
      high = middle;
  }
  return runs[3 * low + 1] + i - runs[3 * low];
}

__device__ uint32_t random_word(const StoredElements& args, int64_t number) {
  const uint64_t counter = static_cast<uint64_t>(number) / 4;
  const PhiloxWords words = philox(args.keys.first[0], args.keys.second[0],
                                   {{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                                     static_cast<uint32_t>(args.step), static_cast<uint32_t>(args.step >> 32)}});
  return words.word[number % 4];
}

__device__ float load_state(const StoredElements& args, int state, int64_t i) {
  const StoredElements::State& from = args.states[state];
  switch (from.type) {
    case spec::StateType::kFp32: break;
    case spec::StateType::kBf16:
      return Bits::float_of(static_cast<uint32_t>(static_cast<const uint16_t*>(from.data)[i]) << 16);
    case spec::StateType::kFp8: {
      const uint8_t* block = static_cast<const uint8_t*>(from.data) + i / spec::kMomentBlock * spec::kMomentBlockBytes;
      return Bits::float_of(Bits::from_code(block[1 + i % spec::kMomentBlock], block[0], from.has_sign));
    }
  }
  return args.elements.states[state][i];
}

// A warp holds a block: kMomentBlock lanes, all of which call this.
__device__ void store_block(const StoredElements::State& to, int64_t i, float value, uint32_t random) {
  const uint32_t bits = Bits::bits_of(value);
  uint32_t largest = bits & Bits::kMagnitude;
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, largest, distance);
    largest = other > largest ? other : largest;
  }
  const uint32_t scale = Bits::scale_of(largest, to.has_sign);
  uint8_t* block = static_cast<uint8_t*>(to.data) + i / spec::kMomentBlock * spec::kMomentBlockBytes;
  if (i % spec::kMomentBlock == 0) block[0] = static_cast<uint8_t>(scale);
  block[1 + i % spec::kMomentBlock] = Bits::to_code(bits, scale, to.has_sign, random);
}

__device__ void store_state(const StoredElements& args, int state, int64_t i, float value, uint32_t word) {
  const StoredElements::State& to = args.states[state];
  const uint32_t random = word >> (static_cast<uint32_t>(state) * spec::kRandomBits) & 0xFFFF;
  switch (to.type) {
    case spec::StateType::kFp32: args.elements.states[state][i] = value; break;
    case spec::StateType::kBf16:
      static_cast<uint16_t*>(to.data)[i] = Bits::to_bf16(Bits::bits_of(value), random);
      break;
    case spec::StateType::kFp8: store_block(to, i, value, random); break;
  }
}

// Where there are blocks the count is a multiple of theirs: a warp is whole or has nothing to do.
template <class Optimizer, class T>
__global__ void update_stored_kernel(StoredElements args, const int64_t* runs, int64_t num_runs, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  spec::OptimizerElement<Lane> element;
  for (int state = 0; state < Optimizer::kNumStates; ++state) element.states[state] = {load_state(args, state, i)};
  update_element<Optimizer, T>(element, args.elements, i);
  const uint32_t word = random_word(args, number_of(i, runs, num_runs));
  for (int state = 0; state < Optimizer::kNumStates; ++state)
    store_state(args, state, i, element.states[state].x, word);
}

template <class T, class... Optimizer>
void launch_stored(spec::OptimizerList<Optimizer...>, spec::OptimizerType which, const StoredElements& args,
                   const int64_t* runs, int64_t num_runs, int64_t count, Stream stream) {
  const auto launch_if = [&](spec::OptimizerType type, auto kernel) {
    if (type == which)
      launch("optimizer_update_stored", kernel, {num_blocks(count, kThreads), kThreads, 0, stream}, args, runs,
             num_runs, count);
  };
  (launch_if(Optimizer::kType, update_stored_kernel<Optimizer, T>), ...);
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

void optimizer_update_stored(spec::OptimizerType optimizer, Element type, const StoredElements& args,
                             const int64_t* runs, int64_t num_runs, int64_t count, Stream stream) {
  with_element(type, [&](auto element) {
    launch_stored<decltype(element)>(spec::Optimizers(), optimizer, args, runs, num_runs, count, stream);
  });
}

void measure(Measure what, const float* values, int64_t count, double* partials, double* result, Stream stream) {
  launch("measure", measure_kernel, {kMeasureParts, kThreads, 0, stream}, what, values, count, partials);
  launch("finish_measure", finish_kernel, {1, kThreads, 0, stream}, partials, result);
}

}  // namespace espalier::cuda
