// The softmax of a block of logits, row by row: sums for the loss, and the gradient over the logits.
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/vectors.cuh"

namespace espalier::cuda {
namespace {

__global__ void begin_kernel(SoftmaxState state, int64_t tokens) {
  const int64_t token = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (token >= tokens) return;
  state.largest[token] = -INFINITY;
  state.sum[token] = 0;
  state.label_logit[token] = 0;
}

// exp(x - largest); where there is nothing yet, 0.
__device__ float relative(float x, float largest) { return largest == -INFINITY ? 0 : expf(x - largest); }

// One block for each row, which it reads once: a thread's sum moves to a larger exponent with its largest logit.
template <class T, bool kWhole>
__global__ void __launch_bounds__(kThreads) accumulate_kernel(LogitBlock block, SoftmaxState state) {
  constexpr int kCount = kPack<T>;
  const int64_t token = blockIdx.x;
  const T* const logits = static_cast<const T*>(block.logits) + token * block.count;
  float largest = -INFINITY, sum = 0;
  for (int64_t first = threadIdx.x * kCount; first < block.count; first += kThreads * kCount) {
    const Pack<T> pack = load_pack<kWhole>(logits + first, block.count - first);
    float values[kCount], next = largest;
    for (int i = 0; i < kCount; ++i) {
      values[i] = kWhole || first + i < block.count ? widen(pack.of[i]) : -INFINITY;
      next = fmaxf(next, values[i]);
    }
    const float shift = next == -INFINITY ? 0 : next;
    float of_pack = 0;
    for (int i = 0; i < kCount; ++i) of_pack += expf(values[i] - shift);
    sum = sum * relative(largest, next) + of_pack;
    largest = next;
  }
  const float before = state.largest[token], of_block = fmaxf(block_max(largest), before);
  sum = block_sum(sum * relative(largest, of_block));
  if (threadIdx.x > 0) return;
  const double kept = state.sum[token] == 0 ? 0 : state.sum[token] * exp(static_cast<double>(before) - of_block);
  state.sum[token] = kept + sum;
  state.largest[token] = of_block;
  const int64_t label = block.labels[token] - block.first;
  if (label >= 0 && label < block.count) state.label_logit[token] = widen(logits[label]);
}

template <class T, bool kWhole>
struct Gradient {
  static constexpr int kCount = kTaken<T, kWhole>, kSums = 1;
  LogitBlock block;
  LogitGradients from;
  __device__ void operator()(int64_t token, int64_t column, float (*)[kCount]) const {
    const int64_t label = block.labels[token] - block.first;
    const float shift = from.log_sum_exp[token], loss = from.losses[token];
    const float both = loss + (from.log_sums == nullptr ? 0 : from.log_sums[token]);
    T* const logits = static_cast<T*>(block.logits) + token * block.count + column;
    const auto pack = load_some<kWhole, kCount>(static_cast<const T*>(logits), kCount);
    float values[kCount];
    for (int i = 0; i < kCount; ++i) {
      // Zero whatever the logit is.
      const float probability = loss == 0 ? 0 : expf(widen(pack.of[i]) - shift);
      values[i] = column + i != label ? probability * both : (probability - 1) * loss + probability * (both - loss);
    }
    store_pack<kWhole>(logits, kCount, values);
  }
};

}  // namespace

void softmax_begin(const SoftmaxState& state, int64_t tokens, Stream stream) {
  if (tokens == 0) return;
  launch("softmax_begin", begin_kernel, {num_blocks(tokens, kThreads), kThreads, 0, stream}, state, tokens);
}

void softmax_accumulate(Element type, const LogitBlock& block, const SoftmaxState& state, Stream stream) {
  if (block.tokens == 0 || block.count == 0) return;
  with_element(type, [&](auto element) {
    using T = decltype(element);
    with_bool(are_whole<T>(block.count, {block.logits}), [&](auto whole) {
      launch("softmax_accumulate", accumulate_kernel<T, whole.value>,
             {num_blocks(block.tokens, 1), kThreads, 0, stream}, block, state);
    });
  });
}

void softmax_gradient(Element type, const LogitBlock& block, const LogitGradients& from, Stream stream) {
  with_element(type, [&](auto element) {
    using T = decltype(element);
    with_bool(are_whole<T>(block.count, {block.logits}), [&](auto whole) {
      launch_packs("softmax_gradient", Gradient<T, whole.value>{block, from}, block.tokens, block.count, stream);
    });
  });
}

}  // namespace espalier::cuda
