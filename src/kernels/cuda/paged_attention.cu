// Attention to keys and values in pages (kernels/paged_attention.h): one block for each token and query head, whose
// warps take turns at 32 keys, a lane each, with a running maximum (Milakov and Gimelshein 2018). What is computed of a
// token depends on its query and on the keys and values that it sees, never on its neighbours.
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/vectors.cuh"

namespace espalier::cuda {
namespace {

using kernels::DeviceTokens;
using kernels::PagedAttention;

constexpr int kWarps = 4, kBlock = kWarps * kWarp;

struct PagedProblem {
  PagedAttention args;
  DeviceTokens tokens;
  int page_bits;  // pages have 2^page_bits tokens

  __device__ const int32_t* token(int64_t number) const { return tokens.rows + number * DeviceTokens::kColumns; }
  __device__ const int32_t* pages_of(const int32_t* token) const {
    return tokens.pages + token[DeviceTokens::kSequence] * tokens.pages_of_sequence;
  }
  // Where the key, or the value, of a position is among those of all pages.
  __device__ int64_t place(const int32_t* pages, int position, int64_t group) const {
    const int64_t page = pages[position >> page_bits];
    return (((page * args.groups + group) << page_bits) + (position & ((1 << page_bits) - 1))) * args.head_size;
  }
};

PagedProblem problem_of(const PagedAttention& args, const DeviceTokens& tokens) {
  PagedProblem problem{args, tokens, 0};
  while (int64_t{1} << problem.page_bits < args.page_tokens) ++problem.page_bits;
  ESPALIER_CHECK(int64_t{1} << problem.page_bits == args.page_tokens, "pages of ", args.page_tokens, " tokens");
  return problem;
}

// One block for each token (x) and group (y).
template <class T>
__global__ void __launch_bounds__(kBlock) append_kernel(PagedProblem problem) {
  const PagedAttention& args = problem.args;
  const int64_t number = blockIdx.x, group = blockIdx.y;
  const int32_t* const token = problem.token(number);
  const T* const key =
      static_cast<const T*>(args.qkv) + ((number * args.groups + group) * args.parts + args.queries) * args.head_size;
  const int64_t to = problem.place(problem.pages_of(token), token[DeviceTokens::kPosition], group);
  for (int64_t channel = threadIdx.x; channel < args.head_size; channel += kBlock) {
    static_cast<T*>(args.keys)[to + channel] = key[channel];
    static_cast<T*>(args.values)[to + channel] = key[args.head_size + channel];
  }
}

// What a warp has seen so far. A lane holds two neighbouring channels out of each 64.
template <int kPairs>
struct RunningSoftmax {
  float largest = -INFINITY, sum_of_weights = 0, total[kPairs][2] = {};

  __device__ void begin_keys(float next, float weight) {
    const float shrink = largest == -INFINITY ? 0 : expf(largest - next);
    sum_of_weights = fmaf(sum_of_weights, shrink, warp_sum(weight));
    for (int pair = 0; pair < kPairs; ++pair)
      for (float& channel : total[pair]) channel *= shrink;
    largest = next;
  }

  template <bool kWhole, class T>
  __device__ void add(float weight, const T* value, int64_t head_size, int lane) {
    for (int pair = 0; pair < kPairs; ++pair) {
      const int channel = (pair * kWarp + lane) * 2;
      if (channel >= head_size) break;
      const auto two = load_some<kWhole, 2>(value + channel, head_size - channel);
      for (int i = 0; i < 2; ++i) total[pair][i] = fmaf(weight, widen(two.of[i]), total[pair][i]);
    }
  }
};

template <bool kWhole, class T>
__device__ float product(const float* query, const T* key, int64_t head_size) {
  constexpr int kCount = kPack<T>;
  float dot = 0;
  for (int64_t first = 0; first < head_size; first += kCount) {
    const Pack<T> pack = load_pack<kWhole>(key + first, head_size - first);
    for (int i = 0; i < kCount; ++i) dot = fmaf(query[first + i], widen(pack.of[i]), dot);
  }
  return dot;
}

// Of a scaled product: the cap comes before what is added by distance.
__device__ float score_of(float product, const PagedAttention& args, int64_t head, int distance) {
  float score = args.soft_cap == 0 ? product : args.soft_cap * tanhf(product / args.soft_cap);
  if (args.slopes != nullptr) score = fmaf(args.slopes[head], static_cast<float>(distance), score);
  if (args.relative_bias != nullptr)
    score += args.relative_bias[head * (2 * args.relative_keys - 1) + args.relative_keys - 1 + distance];
  return score;
}

// One block for each token (x) and query head (y). With as many registers as it wants: to fit more blocks ptxas spills
// one or two.
template <class T, bool kWhole, int kPairs>
__global__ void __launch_bounds__(kBlock, 1) attention_kernel(PagedProblem problem) {
  constexpr int kChannels = kPairs * 2 * kWarp;
  __shared__ float query[kChannels], totals[kWarps][kChannels];
  __shared__ float largest_of[kWarps], sum_of[kWarps];
  const PagedAttention& args = problem.args;
  const int64_t number = blockIdx.x, head = blockIdx.y, head_size = args.head_size;
  const int32_t queries = static_cast<int32_t>(args.queries), group = static_cast<int32_t>(head) / queries;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = (number * args.groups + group) * args.parts + head - int64_t{group} * queries;
  for (int channel = threadIdx.x; channel < kChannels; channel += kBlock)
    query[channel] =
        channel < head_size ? widen(static_cast<const T*>(args.qkv)[row * head_size + channel]) * args.scale : 0;
  __syncthreads();

  const int32_t* const token = problem.token(number);
  const int32_t* const pages = problem.pages_of(token);
  const int position = token[DeviceTokens::kPosition], last = token[DeviceTokens::kLastKey];
  const int before = static_cast<int>(problem.tokens.window) - 1;
  const int first = before < 0 || position < before ? 0 : position - before;
  RunningSoftmax<kPairs> seen;
  for (int base = (first / kWarp + warp) * kWarp; base <= last; base += kBlock) {
    const int key = base + lane;
    const bool sees = key >= first && key <= last;
    float score = -INFINITY;
    if (sees) {
      const T* const from = static_cast<const T*>(args.keys) + problem.place(pages, key, group);
      score = score_of(product<kWhole>(query, from, head_size), args, head, key - position);
    }
    const float next = fmaxf(seen.largest, warp_max(score));
    const float weight = sees ? expf(score - next) : 0;
    seen.begin_keys(next, weight);
    const int end = min(last - base, kWarp - 1);
    for (int other = max(first - base, 0); other <= end; ++other)
      seen.template add<kWhole>(__shfl_sync(kAllLanes, weight, other),
                                static_cast<const T*>(args.values) + problem.place(pages, base + other, group),
                                head_size, lane);
  }

  if (lane == 0) largest_of[warp] = seen.largest, sum_of[warp] = seen.sum_of_weights;
  for (int pair = 0; pair < kPairs; ++pair)
    for (int i = 0; i < 2; ++i) totals[warp][(pair * kWarp + lane) * 2 + i] = seen.total[pair][i];
  __syncthreads();
  float largest = -INFINITY, share[kWarps], sum = 0;
  for (int other = 0; other < kWarps; ++other) largest = fmaxf(largest, largest_of[other]);
  for (int other = 0; other < kWarps; ++other) {
    share[other] = largest_of[other] == -INFINITY ? 0 : expf(largest_of[other] - largest);
    sum = fmaf(sum_of[other], share[other], sum);
  }
  const float divisor = sum > 0 ? sum : 1;
  T* const result = static_cast<T*>(args.result) + (number * args.groups * queries + head) * head_size;
  for (int channel = threadIdx.x; channel < head_size; channel += kBlock) {
    float total = 0;
    for (int other = 0; other < kWarps; ++other) total = fmaf(totals[other][channel], share[other], total);
    store(result + channel, total / divisor);
  }
}

template <class T, bool kWhole>
void attend(const PagedProblem& problem, Stream stream) {
  const PagedAttention& args = problem.args;
  const dim3 grid(num_blocks(problem.tokens.count, 1), num_blocks(args.groups * args.queries, 1));
  const Launch how{grid, kBlock, 0, stream};
  if (args.head_size <= 64)
    launch("paged_attention", attention_kernel<T, kWhole, 1>, how, problem);
  else if (args.head_size <= 128)
    launch("paged_attention", attention_kernel<T, kWhole, 2>, how, problem);
  else
    launch("paged_attention", attention_kernel<T, kWhole, kMaxHeadSize / (2 * kWarp)>, how, problem);
}

}  // namespace

void append_to_pages(Element type, const PagedAttention& args, const DeviceTokens& tokens, Stream stream) {
  if (tokens.count == 0) return;
  const dim3 grid(num_blocks(tokens.count, 1), num_blocks(args.groups, 1));
  with_element(type, [&](auto element) {
    launch("append_to_pages", append_kernel<decltype(element)>, {grid, kBlock, 0, stream}, problem_of(args, tokens));
  });
}

void paged_attention(Element type, const PagedAttention& args, const DeviceTokens& tokens, Stream stream) {
  if (tokens.count == 0) return;
  with_element(type, [&](auto element) {
    using T = decltype(element);
    with_bool(are_whole<T>(args.head_size, {args.keys, args.values}),
              [&](auto whole) { attend<T, whole.value>(problem_of(args, tokens), stream); });
  });
}

}  // namespace espalier::cuda
