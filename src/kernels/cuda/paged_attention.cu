// Attention to keys and values in pages (kernels/paged_attention.h). Long runs of one sequence's tokens go to tensor
// cores where the problem fits these; of all others there is one block for each token, query head and part of the keys,
// whose warps take turns at 32 keys, a lane each, with a running maximum (Milakov and Gimelshein 2018). Where a token
// has several parts (Dao et al. 2023), their sums are added in order by a second launch. What is computed of a token
// depends on its query, on the keys and values that it sees, and on whether its run is long; not on other sequences.
#include "kernels/cuda/attention_tensor_cores.h"
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/paged_problem.cuh"
#include "kernels/cuda/vectors.cuh"

namespace espalier::cuda {
namespace {

using kernels::AttentionType;
using kernels::DeviceTokens;
using kernels::PagedAttention;

constexpr int kWarps = 4, kBlock = kWarps * kWarp;

// One block for each token (x) and group (y).
template <class T>
__global__ void __launch_bounds__(kBlock) append_kernel(PagedProblem problem) {
  const PagedAttention& args = problem.args;
  const int64_t number = blockIdx.x, group = blockIdx.y;
  const T* const key =
      static_cast<const T*>(args.qkv) + ((number * args.groups + group) * args.parts + args.queries) * args.head_size;
  const int64_t to = problem.place(problem.pages_of(number), problem.tokens.positions[number], group);
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

// What a block of plain cores has of a token: the keys first .. last of those that it sees.
struct Share {
  int64_t token;  // -1: the block has nothing to do
  int first, last;
  int part, first_part, last_part;  // its own, and those that have keys which the token sees
};
// Of the singles, a block for each entry of their list; or of the tokens in tiles, a block for each, which sees all.
__device__ Share share_of(const DeviceTokens& tokens, bool of_singles, unsigned block) {
  Share share{};
  if (of_singles) {
    share.token = tokens.singles[block].token;
    share.part = tokens.singles[block].part;
  } else {
    const DeviceTokens::Tile tile = tokens.tiles[block / DeviceTokens::kTile];
    const int place = static_cast<int>(block % DeviceTokens::kTile);
    if (place >= tile.count) return {.token = -1};
    share.token = tile.first + place;
  }
  const int position = tokens.positions[share.token], before = static_cast<int>(tokens.window) - 1;
  share.first = before < 0 || position < before ? 0 : position - before;
  share.last = tokens.last_keys[share.token];
  if (of_singles) {
    constexpr int kKeys = DeviceTokens::kKeysOfPart;
    share.first_part = share.first / kKeys, share.last_part = share.last / kKeys;
    if (share.part < share.first_part) return {.token = -1};
    share.first = max(share.first, share.part * kKeys);
    share.last = min(share.last, share.part * kKeys + kKeys - 1);
  }
  return share;
}

// The sums of one entry of the singles' list and one head: the largest score, the sum of weights, the totals.
__device__ float* partials_of(float* partials, const PagedAttention& args, int64_t entry, int64_t head) {
  return partials + (entry * args.groups * args.queries + head) * (args.head_size + 2);
}

// One block for each share of a token (x) and query head (y). With as many registers as it wants: to fit more
// blocks ptxas spills one or two.
template <class T, bool kWhole, int kPairs>
__global__ void __launch_bounds__(kBlock, 1) attention_kernel(PagedProblem problem, bool of_singles, float* partials) {
  constexpr int kChannels = kPairs * 2 * kWarp;
  __shared__ float query[kChannels], totals[kWarps][kChannels];
  __shared__ float largest_of[kWarps], sum_of[kWarps];
  const PagedAttention& args = problem.args;
  const Share own = share_of(problem.tokens, of_singles, blockIdx.x);
  if (own.token < 0) return;
  const int64_t number = own.token, head = blockIdx.y, head_size = args.head_size;
  const int32_t queries = static_cast<int32_t>(args.queries), group = static_cast<int32_t>(head) / queries;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = (number * args.groups + group) * args.parts + head - int64_t{group} * queries;
  for (int channel = threadIdx.x; channel < kChannels; channel += kBlock)
    query[channel] =
        channel < head_size ? widen(static_cast<const T*>(args.qkv)[row * head_size + channel]) * args.scale : 0;
  __syncthreads();

  const int32_t* const pages = problem.pages_of(number);
  const int position = problem.tokens.positions[number], first = own.first, last = own.last;
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
  const bool is_whole = own.first_part == own.last_part;
  float* const of_part = is_whole ? nullptr : partials_of(partials, args, blockIdx.x, head);
  if (!is_whole && threadIdx.x == 0) of_part[0] = largest, of_part[1] = sum;
  const float divisor = sum > 0 ? sum : 1;
  T* const result = static_cast<T*>(args.result) + (number * args.groups * queries + head) * head_size;
  for (int channel = threadIdx.x; channel < head_size; channel += kBlock) {
    float total = 0;
    for (int other = 0; other < kWarps; ++other) total = fmaf(totals[other][channel], share[other], total);
    if (is_whole)
      store(result + channel, total / divisor);
    else
      of_part[2 + channel] = total;
  }
}

// One block for each entry of the singles' list (x), of which those that are a token's last add up its parts, and query
// head (y).
template <class T>
__global__ void __launch_bounds__(kBlock) add_parts_kernel(PagedProblem problem, float* partials) {
  const PagedAttention& args = problem.args;
  const Share own = share_of(problem.tokens, /*of_singles=*/true, blockIdx.x);
  if (own.token < 0 || own.part < own.last_part || own.first_part == own.last_part) return;
  const int64_t head = blockIdx.y, first_entry = int64_t{blockIdx.x} - own.last_part;  // of part 0
  const auto of_part = [&](int part) { return partials_of(partials, args, first_entry + part, head); };
  float largest = -INFINITY, sum = 0;
  for (int part = own.first_part; part <= own.last_part; ++part) largest = fmaxf(largest, of_part(part)[0]);
  const auto weight_of = [&](int part) { return of_part(part)[0] == -INFINITY ? 0 : expf(of_part(part)[0] - largest); };
  for (int part = own.first_part; part <= own.last_part; ++part) sum = fmaf(of_part(part)[1], weight_of(part), sum);
  const float divisor = sum > 0 ? sum : 1;
  T* const result = static_cast<T*>(args.result) + (own.token * args.groups * args.queries + head) * args.head_size;
  for (int64_t channel = threadIdx.x; channel < args.head_size; channel += kBlock) {
    float total = 0;
    for (int part = own.first_part; part <= own.last_part; ++part)
      total = fmaf(of_part(part)[2 + channel], weight_of(part), total);
    store(result + channel, total / divisor);
  }
}

// Of the singles, or of the tokens in tiles.
template <class T, bool kWhole>
void attend(const PagedProblem& problem, bool of_singles, float* partials, Stream stream) {
  const PagedAttention& args = problem.args;
  const DeviceTokens& tokens = problem.tokens;
  const int64_t shares = of_singles ? tokens.num_singles : tokens.num_tiles * DeviceTokens::kTile;
  if (shares == 0) return;
  const dim3 grid(num_blocks(shares, 1), num_blocks(args.groups * args.queries, 1));
  const Launch how{grid, kBlock, 0, stream};
  if (args.head_size <= 64)
    launch("paged_attention", attention_kernel<T, kWhole, 1>, how, problem, of_singles, partials);
  else if (args.head_size <= 128)
    launch("paged_attention", attention_kernel<T, kWhole, 2>, how, problem, of_singles, partials);
  else
    launch("paged_attention", attention_kernel<T, kWhole, kMaxHeadSize / (2 * kWarp)>, how, problem, of_singles,
           partials);
  if (of_singles && partials != nullptr) launch("paged_attention_parts", add_parts_kernel<T>, how, problem, partials);
}

AttentionProblem problem_of_rows(Element type, const PagedAttention& args, const DeviceTokens& tokens) {
  const int64_t size = args.head_size, page = args.page_tokens * size;
  AttentionProblem problem{.type = type == Element::kFloat      ? AttentionType::kFloat
                                   : type == Element::kBFloat16 ? AttentionType::kBFloat16
                                                                : AttentionType::kHalf,
                           .batch = 1,
                           .groups = args.groups,
                           .members = args.queries,
                           .head_size = size};
  problem.query = {const_cast<void*>(args.qkv), 0, args.parts * size, size, args.groups * args.parts * size};
  problem.key = {args.keys, 0, page, 0, size};
  problem.value = {args.values, 0, page, 0, size};
  problem.result = {args.result, 0, args.queries * size, size, args.groups * args.queries * size};
  problem.window = tokens.window;
  problem.slopes = args.slopes;
  problem.scale = args.scale;
  problem.soft_cap = args.soft_cap;
  problem.relative_bias = args.relative_bias;
  problem.relative_reach = args.relative_keys - 1;
  return problem;
}

}  // namespace

void append_to_pages(Element type, const PagedAttention& args, const DeviceTokens& tokens, Stream stream) {
  if (tokens.count == 0) return;
  const dim3 grid(num_blocks(tokens.count, 1), num_blocks(args.groups, 1));
  with_element(type, [&](auto element) {
    launch("append_to_pages", append_kernel<decltype(element)>, {grid, kBlock, 0, stream}, paged_problem(args, tokens));
  });
}

int64_t paged_partials(const PagedAttention& args, const DeviceTokens& tokens) {
  if (tokens.pages_of_sequence * args.page_tokens <= DeviceTokens::kKeysOfPart) return 0;
  return tokens.num_singles * args.groups * args.queries * (args.head_size + 2);
}

void paged_attention(Element type, const PagedAttention& args, const DeviceTokens& tokens, float* partials,
                     Stream stream) {
  const PagedProblem problem = paged_problem(args, tokens);
  const AttentionProblem as_rows = problem_of_rows(type, args, tokens);
  const bool on_tensor_cores = tokens.num_tiles > 0 && fits_tensor_cores(as_rows, nullptr);
  if (on_tensor_cores) (type == Element::kBFloat16 ? paged_tiles_bf16 : paged_tiles_fp16)(as_rows, problem, stream);
  with_element(type, [&](auto element) {
    using T = decltype(element);
    with_bool(are_whole<T>(args.head_size, {args.keys, args.values}), [&](auto whole) {
      if (!on_tensor_cores) attend<T, whole.value>(problem, /*of_singles=*/false, nullptr, stream);
      attend<T, whole.value>(problem, /*of_singles=*/true, partials, stream);
    });
  });
}

}  // namespace espalier::cuda
