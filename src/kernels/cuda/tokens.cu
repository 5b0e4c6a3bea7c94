// What goes by token: embedding rows, the softmax of a block of logits, and draws from logits.
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/internal/gumbel.h"

namespace espalier::cuda {
namespace {

template <class T>
__global__ void gather_kernel(EmbeddingForward args) {
  const int64_t token = blockIdx.x;  // row of the result: [position][sample]
  const int64_t id = args.ids[token % args.num_samples * args.length + token / args.num_samples] - args.first_row;
  const bool present = id >= 0 && id < args.num_rows;
  const T* const from = static_cast<const T*>(args.weight) + (present ? id * args.columns : 0);
  T* const to = static_cast<T*>(args.y) + token * args.columns;
  for (int64_t i = threadIdx.x; i < args.columns; i += kThreads) {
    if (present)
      to[i] = from[i];
    else
      store(to + i, 0.0f);
  }
}

// One block for each token and kThreads columns; the first token of an id adds the gradients of all of them, in order.
template <class T>
__global__ void scatter_kernel(EmbeddingBackward args) {
  const int64_t at = blockIdx.x, column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  const int64_t id = args.sorted_ids[at], row = id - args.first_row;
  const bool first_of_id = at == 0 || args.sorted_ids[at - 1] != id;
  if (!first_of_id || row < 0 || row >= args.num_rows || column >= args.columns) return;
  float* const to = args.grad + row * args.columns + column;
  float sum = *to;
  for (int64_t next = at; next < args.num_tokens && args.sorted_ids[next] == id; ++next)
    sum += widen(static_cast<const T*>(args.dy)[args.order[next] * args.columns + column]);
  *to = sum;
}

__global__ void begin_kernel(SoftmaxState state, int64_t tokens) {
  const int64_t token = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (token >= tokens) return;
  state.largest[token] = -INFINITY;
  state.sum[token] = 0;
  state.label_logit[token] = 0;
}

template <class T>
__global__ void accumulate_kernel(LogitBlock block, SoftmaxState state) {
  const int64_t token = blockIdx.x;
  const T* const logits = static_cast<const T*>(block.logits) + token * block.count;
  float largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < block.count; i += kThreads) largest = fmaxf(largest, widen(logits[i]));
  const float before = state.largest[token];
  largest = fmaxf(block_max(largest), before);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < block.count; i += kThreads) sum += expf(widen(logits[i]) - largest);
  sum = block_sum(sum);
  if (threadIdx.x > 0) return;
  const double kept = state.sum[token] == 0 ? 0 : state.sum[token] * exp(static_cast<double>(before) - largest);
  state.sum[token] = kept + sum;
  state.largest[token] = largest;
  const int64_t label = block.labels[token] - block.first;
  if (label >= 0 && label < block.count) state.label_logit[token] = widen(logits[label]);
}

template <class T>
__global__ void gradient_kernel(LogitBlock block, LogitGradients from) {
  const int64_t token = blockIdx.x, label = block.labels[token] - block.first;
  T* const logits = static_cast<T*>(block.logits) + token * block.count;
  const float shift = from.log_sum_exp[token], loss = from.losses[token];
  const float both = loss + (from.log_sums == nullptr ? 0 : from.log_sums[token]);
  for (int64_t i = threadIdx.x; i < block.count; i += kThreads) {
    // Zero whatever the logit is.
    const float probability = loss == 0 ? 0 : expf(widen(logits[i]) - shift);
    store(logits + i, i != label ? probability * both : (probability - 1) * loss + probability * (both - loss));
  }
}

// One block for each token. Of equal scores the lower row's.
__global__ void draw_kernel(LabelDraws args) {
  __shared__ double scores[kThreads];
  __shared__ int64_t rows[kThreads];
  const int64_t token = blockIdx.x;
  const float* const logits = args.logits + token * args.num_rows;
  const MaskPlace place{static_cast<uint32_t>(args.first_position + token / args.num_samples), 0,
                        static_cast<uint64_t>(args.sample_numbers[token % args.num_samples])};
  double best = -INFINITY;
  int64_t best_row = args.first_row;
  for (int64_t i = threadIdx.x; i < args.num_rows; i += kThreads) {
    const auto row = static_cast<uint32_t>(args.first_row + i);
    const double score = logits[i] + kernels::gumbel(mask_word(args.key[0], args.key[1], place, row));
    if (score > best) best = score, best_row = row;
  }
  scores[threadIdx.x] = best;
  rows[threadIdx.x] = best_row;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int thread = 1; thread < kThreads; ++thread)
    if (scores[thread] > best || (scores[thread] == best && rows[thread] < best_row))
      best = scores[thread], best_row = rows[thread];
  args.rows[token] = best_row;
  args.scores[token] = best;
}

}  // namespace

void embedding_forward(Element type, const EmbeddingForward& args, Stream stream) {
  with_element(type, [&](auto element) {
    launch("embedding_forward", gather_kernel<decltype(element)>,
           {num_blocks(args.num_samples * args.length, 1), kThreads, 0, stream}, args);
  });
}

void embedding_backward(Element type, const EmbeddingBackward& args, Stream stream) {
  with_element(type, [&](auto element) {
    const dim3 grid(num_blocks(args.num_tokens, 1), num_blocks(args.columns, kThreads));
    launch("embedding_backward", scatter_kernel<decltype(element)>, {grid, kThreads, 0, stream}, args);
  });
}

void softmax_begin(const SoftmaxState& state, int64_t tokens, Stream stream) {
  launch("softmax_begin", begin_kernel, {num_blocks(tokens, kThreads), kThreads, 0, stream}, state, tokens);
}

void softmax_accumulate(Element type, const LogitBlock& block, const SoftmaxState& state, Stream stream) {
  with_element(type, [&](auto element) {
    launch("softmax_accumulate", accumulate_kernel<decltype(element)>,
           {num_blocks(block.tokens, 1), kThreads, 0, stream}, block, state);
  });
}

void softmax_gradient(Element type, const LogitBlock& block, const LogitGradients& from, Stream stream) {
  with_element(type, [&](auto element) {
    launch("softmax_gradient", gradient_kernel<decltype(element)>, {num_blocks(block.tokens, 1), kThreads, 0, stream},
           block, from);
  });
}

void draw_labels(const LabelDraws& args, int64_t tokens, Stream stream) {
  launch("draw_labels", draw_kernel, {num_blocks(tokens, 1), kThreads, 0, stream}, args);
}

}  // namespace espalier::cuda
