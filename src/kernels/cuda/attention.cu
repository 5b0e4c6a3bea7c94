// Attention tile by tile in shared memory (Dao et al. 2022), in fp32 on plain cores: scores are never in memory. Of
// fp32, and what does not fit tensor cores; those have the rest (attention_tensor_cores.h), but for the gradient of a
// bias.
//
// A block has a tile of kTile queries (forward, dQ) or of kTile keys (dK and dV) of one head and goes over the tiles of
// the other side that it sees. Each warp has kRowsOfWarp rows of its own side; lane l has position l of the other tile
// where scores are computed, and the channels l, l + 32, ... where channels are. Exponents are to base 2. Each element
// is written by one block, so nothing depends on the order in which blocks run; scores are computed once more for dQ.
// Positions are below 2^31, so what a query sees is kept in 32 bits.
//
//   forward: x = scale q k + slope (key - query) + bias of that distance, softmax running over tiles, O = sum p v;
//            lse = log2 sum 2^x
//   backward: P = 2^(x - lse);  dP = dO V^T;  dS = P (mask dP - D), D = rowsum(dO O);
//             dV = (mask P)^T dO;  dK = scale dS^T Q;  dQ = scale dS K;  d bias = sum of dS over all pairs of a
//             distance
// That last sum has a block for each diagonal of tiles, which computes the scores of its tiles a third time: their dS
// added up as they are, then by distance; then the rows of the batch are added in order.
#include <algorithm>

#include "kernels/cuda/attention_pair.cuh"
#include "kernels/cuda/attention_tensor_cores.h"

namespace espalier::cuda {
namespace {

using kernels::AttentionType;

constexpr int kTile = 32;
constexpr int kRowsOfWarp = kTile / (kThreads / kWarp);

__device__ float read(AttentionType type, const AttentionOperand& operand, int64_t offset) {
  switch (type) {
    case AttentionType::kFloat: return static_cast<const float*>(operand.data)[offset];
    case AttentionType::kBFloat16: return widen(static_cast<const Bf16*>(operand.data)[offset]);
    case AttentionType::kHalf: return widen(static_cast<const Fp16*>(operand.data)[offset]);
  }
  return 0;
}

__device__ void write(AttentionType type, const AttentionOperand& operand, int64_t offset, float value) {
  switch (type) {
    case AttentionType::kFloat: store(static_cast<float*>(operand.data) + offset, value); break;
    case AttentionType::kBFloat16: store(static_cast<Bf16*>(operand.data) + offset, value); break;
    case AttentionType::kHalf: store(static_cast<Fp16*>(operand.data) + offset, value); break;
  }
}

// A tile of an operand as fp32, rows padded so that lanes which read one channel of 32 rows meet 32 banks.
struct Tile {
  float* values;
  int stride;
  __device__ float* row(int position) const { return values + position * stride; }
};

__device__ void load(const Tile& tile, const Pair& pair, const AttentionOperand& operand, int64_t first,
                     int64_t positions) {
  const int features = static_cast<int>(pair.problem.head_size);
  for (int i = threadIdx.x; i < kTile * features; i += kThreads) {
    const int position = i / features, feature = i % features;
    const bool present = first + position < positions;
    tile.row(position)[feature] =
        present ? read(pair.problem.type, operand, pair.offset(operand, first + position) + feature) : 0;
  }
}

// products[r] = the dot product of row first_row + r of `own` and row `lane` of `other`.
__device__ void dot_rows(const Tile& own, int first_row, const Tile& other, int features, float* products) {
  const float* const theirs = other.row(threadIdx.x % kWarp);
  for (int r = 0; r < kRowsOfWarp; ++r) products[r] = 0;
  for (int feature = 0; feature < features; ++feature) {
    const float value = theirs[feature];
    for (int r = 0; r < kRowsOfWarp; ++r) products[r] = fmaf(own.row(first_row + r)[feature], value, products[r]);
  }
}

// sums[r][c] += sum over the 32 rows of `other` of factor[r] (lane: row of other) * its channels.
template <int kChannels>
__device__ void add_rows(const float* factors, const Tile& other, int features, float (*sums)[kChannels]) {
  const int lane = threadIdx.x % kWarp;
  for (int position = 0; position < kTile; ++position) {
    float factor[kRowsOfWarp];
    for (int r = 0; r < kRowsOfWarp; ++r) factor[r] = __shfl_sync(kAllLanes, factors[r], position);
    for (int c = 0; c < kChannels; ++c) {
      const int channel = c * kWarp + lane;
      const float value = channel < features ? other.row(position)[channel] : 0;
      for (int r = 0; r < kRowsOfWarp; ++r) sums[r][c] = fmaf(factor[r], value, sums[r][c]);
    }
  }
}

template <int kChannels>
__device__ void write_rows(const Pair& pair, const AttentionOperand& operand, int64_t first, int64_t positions,
                           const float (*sums)[kChannels], const float* factors) {
  const int lane = threadIdx.x % kWarp;
  for (int r = 0; r < kRowsOfWarp; ++r) {
    if (first + r >= positions) return;
    for (int c = 0; c < kChannels; ++c) {
      const int channel = c * kWarp + lane;
      if (channel < pair.problem.head_size)
        write(pair.problem.type, operand, pair.offset(operand, first + r) + channel, sums[r][c] * factors[r]);
    }
  }
}

// Tile number `number` of the block's shared memory.
__device__ Tile shared_tile(const AttentionProblem& problem, int number) {
  const int stride = static_cast<int>(problem.head_size) + 1;
  return {shared_memory() + number * kTile * stride, stride};
}

// From the first to the last key that some query of a tile sees: [first, end), first a multiple of kTile; nothing where
// none sees any.
struct KeyRange {
  int64_t first, end;
};
__device__ KeyRange keys_of_tile(const Pair& pair, int64_t first_query) {
  const Keys any = keys_of_queries<kTile>(pair, static_cast<int>(first_query)).any;
  return {int64_t{any.first} / kTile * kTile, int64_t{any.last} + 1};
}

template <int kChannels>
__global__ void __launch_bounds__(kThreads, 1) forward_kernel(AttentionProblem problem) {
  const Pair pair = pair_of(problem, blockIdx.y);
  const int64_t first_query = int64_t{blockIdx.x} * kTile;
  const int features = static_cast<int>(problem.head_size), lane = threadIdx.x % kWarp;
  const int own_row = threadIdx.x / kWarp * kRowsOfWarp;
  const Tile queries = shared_tile(problem, 0), keys = shared_tile(problem, 1), values = shared_tile(problem, 2);
  load(queries, pair, problem.query, first_query, problem.num_queries);
  Keys seen[kRowsOfWarp];
  for (int r = 0; r < kRowsOfWarp; ++r) seen[r] = pair.keys_of(first_query + own_row + r);
  OnlineSoftmax softmax[kRowsOfWarp];
  float largest[kRowsOfWarp];  // logit of this lane's keys
  for (int r = 0; r < kRowsOfWarp; ++r) largest[r] = -INFINITY;
  float sums[kRowsOfWarp][kChannels] = {};
  const KeyRange range = keys_of_tile(pair, first_query);
  for (int64_t first_key = range.first; first_key < range.end; first_key += kTile) {
    __syncthreads();
    load(keys, pair, problem.key, first_key, pair.num_keys);
    load(values, pair, problem.value, first_key, pair.num_keys);
    __syncthreads();
    float probabilities[kRowsOfWarp];
    dot_rows(queries, own_row, keys, features, probabilities);
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const int64_t query = first_query + own_row + r, key = first_key + lane;
      if (problem.max_logits != nullptr && seen[r].has(key))
        largest[r] = fmaxf(largest[r], probabilities[r] * problem.scale);
      const float x = pair.exponent(probabilities[r], query, key, seen[r]);
      const float factor = softmax[r].raise(warp_max(x));
      for (int c = 0; c < kChannels; ++c) sums[r][c] *= factor;
      const float p = softmax[r].probability(x);
      softmax[r].sum += warp_sum(p);
      probabilities[r] = p == 0 ? 0 : p * pair.keep_factor(query, key);
    }
    add_rows<kChannels>(probabilities, values, features, sums);
  }
  float factors[kRowsOfWarp];
  for (int r = 0; r < kRowsOfWarp; ++r) factors[r] = seen[r].none() ? 0 : 1 / softmax[r].sum;
  write_rows<kChannels>(pair, problem.result, first_query + own_row, problem.num_queries, sums, factors);
  if (problem.max_logits != nullptr)
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const float of_query = warp_max(largest[r]);
      if (lane == 0 && first_query + own_row + r < problem.num_queries)
        problem.max_logits[pair.stats(first_query + own_row + r)] = of_query;
    }
  if (problem.log_sum_exp == nullptr || lane > 0) return;
  for (int r = 0; r < kRowsOfWarp; ++r)
    if (first_query + own_row + r < problem.num_queries)
      problem.log_sum_exp[pair.stats(first_query + own_row + r)] = softmax[r].log_sum();
}

// row_dots = rowsum(dO O), one warp for each query.
__global__ void row_dots_kernel(AttentionProblem problem, AttentionOperand d_result, float* row_dots) {
  const Pair pair = pair_of(problem, blockIdx.y);
  const int64_t query = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (query >= problem.num_queries) return;
  float sum = 0;
  for (int64_t feature = threadIdx.x % kWarp; feature < problem.head_size; feature += kWarp)
    sum = fmaf(read(problem.type, problem.result, pair.offset(problem.result, query) + feature),
               read(problem.type, d_result, pair.offset(d_result, query) + feature), sum);
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) row_dots[pair.stats(query)] = sum;
}

// What one (query, key) adds to the gradients.
struct ScoreGradient {
  float masked_probability, d_score;
};
__device__ ScoreGradient score_gradient(const Pair& pair, const Keys& seen, int64_t query, int64_t key, float product,
                                        float d_probability, const float* row_dots) {
  const float x = pair.exponent(product, query, key, seen);
  if (x == -INFINITY) return {0, 0};
  const int64_t stats = pair.stats(query);
  const float p = exp2f(x - pair.problem.log_sum_exp[stats]), keep = pair.keep_factor(query, key);
  return {p * keep, p * (d_probability * keep - row_dots[stats])};
}

template <int kChannels>
__global__ void __launch_bounds__(kThreads, 1)
    query_gradient_kernel(AttentionProblem problem, AttentionGradients gradients, const float* row_dots) {
  const Pair pair = pair_of(problem, blockIdx.y);
  const int64_t first_query = int64_t{blockIdx.x} * kTile;
  const int features = static_cast<int>(problem.head_size), lane = threadIdx.x % kWarp;
  const int own_row = threadIdx.x / kWarp * kRowsOfWarp;
  const Tile queries = shared_tile(problem, 0), d_results = shared_tile(problem, 1), keys = shared_tile(problem, 2),
             values = shared_tile(problem, 3);
  load(queries, pair, problem.query, first_query, problem.num_queries);
  load(d_results, pair, gradients.result, first_query, problem.num_queries);
  Keys seen[kRowsOfWarp];
  for (int r = 0; r < kRowsOfWarp; ++r) seen[r] = pair.keys_of(first_query + own_row + r);
  float sums[kRowsOfWarp][kChannels] = {};
  const KeyRange range = keys_of_tile(pair, first_query);
  for (int64_t first_key = range.first; first_key < range.end; first_key += kTile) {
    __syncthreads();
    load(keys, pair, problem.key, first_key, pair.num_keys);
    load(values, pair, problem.value, first_key, pair.num_keys);
    __syncthreads();
    float d_scores[kRowsOfWarp], d_probabilities[kRowsOfWarp];
    dot_rows(queries, own_row, keys, features, d_scores);
    dot_rows(d_results, own_row, values, features, d_probabilities);
    for (int r = 0; r < kRowsOfWarp; ++r)
      d_scores[r] =
          pair.cap_slope(d_scores[r]) * score_gradient(pair, seen[r], first_query + own_row + r, first_key + lane,
                                                       d_scores[r], d_probabilities[r], row_dots)
                                            .d_score;
    add_rows<kChannels>(d_scores, keys, features, sums);
  }
  float factors[kRowsOfWarp];
  for (int r = 0; r < kRowsOfWarp; ++r) factors[r] = problem.scale;
  write_rows<kChannels>(pair, gradients.query, first_query + own_row, problem.num_queries, sums, factors);
}

// Rows of a warp are keys, lanes are queries, of one query head of the group after the other.
template <int kChannels>
__global__ void __launch_bounds__(kThreads, 1)
    key_gradient_kernel(AttentionProblem problem, AttentionGradients gradients, const float* row_dots) {
  Pair pair = pair_of(problem, int64_t{blockIdx.y} * problem.members);  // the first member of a group
  const int64_t first_key = int64_t{blockIdx.x} * kTile;
  const int features = static_cast<int>(problem.head_size), lane = threadIdx.x % kWarp;
  const int own_row = threadIdx.x / kWarp * kRowsOfWarp;
  const Tile keys = shared_tile(problem, 0), values = shared_tile(problem, 1), queries = shared_tile(problem, 2),
             d_results = shared_tile(problem, 3);
  load(keys, pair, problem.key, first_key, pair.num_keys);
  load(values, pair, problem.value, first_key, pair.num_keys);
  float d_keys[kRowsOfWarp][kChannels] = {}, d_values[kRowsOfWarp][kChannels] = {};
  // Under plain causality the queries before the first key of the tile see none of it: not even asked.
  const bool from_own = problem.causal && problem.last_key == nullptr;
  const int64_t begin = from_own ? max(first_key - pair.before, int64_t{0}) / kTile * kTile : 0;
  for (int64_t member = 0; member < problem.members; ++member, ++pair.member, ++pair.head) {
    for (int64_t first_query = begin; first_query < problem.num_queries; first_query += kTile) {
      const KeyRange range = keys_of_tile(pair, first_query);
      if (range.first >= first_key + kTile || range.end <= first_key) continue;  // the same for the whole block
      __syncthreads();
      load(queries, pair, problem.query, first_query, problem.num_queries);
      load(d_results, pair, gradients.result, first_query, problem.num_queries);
      __syncthreads();
      const Keys seen = pair.keys_of(first_query + lane);
      float d_scores[kRowsOfWarp], probabilities[kRowsOfWarp];
      dot_rows(keys, own_row, queries, features, d_scores);
      dot_rows(values, own_row, d_results, features, probabilities);
      for (int r = 0; r < kRowsOfWarp; ++r) {
        const ScoreGradient gradient = score_gradient(pair, seen, first_query + lane, first_key + own_row + r,
                                                      d_scores[r], probabilities[r], row_dots);
        d_scores[r] = pair.cap_slope(d_scores[r]) * gradient.d_score;
        probabilities[r] = gradient.masked_probability;
      }
      add_rows<kChannels>(d_scores, queries, features, d_keys);
      add_rows<kChannels>(probabilities, d_results, features, d_values);
    }
  }
  float scales[kRowsOfWarp], ones[kRowsOfWarp];
  for (int r = 0; r < kRowsOfWarp; ++r) {
    scales[r] = problem.scale;
    ones[r] = 1;
  }
  write_rows<kChannels>(pair, gradients.key, first_key + own_row, pair.num_keys, d_keys, scales);
  write_rows<kChannels>(pair, gradients.value, first_key + own_row, pair.num_keys, d_values, ones);
}

// Diagonal number x has the tiles of keys that are x - (query tiles - 1) after their tile of queries. Its sums go by
// key - query, from -(kTile - 1) to kTile - 1, plus the distance of the tiles.
constexpr int kDistances = 2 * kTile - 1;
__global__ void __launch_bounds__(kThreads) diagonal_kernel(AttentionProblem problem, AttentionGradients gradients,
                                                            AttentionScratch scratch, int64_t num_diagonals) {
  __shared__ float sums_of_pairs[kTile][kTile + 1];  // [query][key]
  const Pair pair = pair_of(problem, blockIdx.y);
  const int features = static_cast<int>(problem.head_size), lane = threadIdx.x % kWarp;
  const int own_row = threadIdx.x / kWarp * kRowsOfWarp;
  const Tile queries = shared_tile(problem, 0), d_results = shared_tile(problem, 1), keys = shared_tile(problem, 2),
             values = shared_tile(problem, 3);
  const int64_t query_tiles = (problem.num_queries + kTile - 1) / kTile;
  const int64_t keys_after = (int64_t{blockIdx.x} - (query_tiles - 1)) * kTile;
  float sums[kRowsOfWarp] = {};
  for (int64_t first_query = max(-keys_after, int64_t{0}); first_query < problem.num_queries; first_query += kTile) {
    const int64_t first_key = first_query + keys_after;
    const KeyRange range = keys_of_tile(pair, first_query);
    if (range.first >= first_key + kTile || range.end <= first_key) continue;  // the same for the whole block
    __syncthreads();
    load(queries, pair, problem.query, first_query, problem.num_queries);
    load(d_results, pair, gradients.result, first_query, problem.num_queries);
    load(keys, pair, problem.key, first_key, pair.num_keys);
    load(values, pair, problem.value, first_key, pair.num_keys);
    __syncthreads();
    float products[kRowsOfWarp], d_probabilities[kRowsOfWarp];
    dot_rows(queries, own_row, keys, features, products);
    dot_rows(d_results, own_row, values, features, d_probabilities);
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const int64_t query = first_query + own_row + r;
      sums[r] += score_gradient(pair, pair.keys_of(query), query, first_key + lane, products[r], d_probabilities[r],
                                scratch.row_dots)
                     .d_score;
    }
  }
  for (int r = 0; r < kRowsOfWarp; ++r) sums_of_pairs[own_row + r][lane] = sums[r];
  __syncthreads();
  if (threadIdx.x >= kDistances) return;
  const int distance = static_cast<int>(threadIdx.x) - (kTile - 1);
  float sum = 0;
  for (int query = max(0, -distance); query < min(kTile, kTile - distance); ++query)
    sum += sums_of_pairs[query][query + distance];
  scratch.diagonals[(int64_t{blockIdx.y} * num_diagonals + blockIdx.x) * kDistances + threadIdx.x] = sum;
}

// Element of the gradient of the bias: a distance is in two diagonals, or in one where it is that of whole tiles.
struct DiagonalSums {
  const float* diagonals;
  float* gradient;
  int64_t batch, heads, num_diagonals, query_tiles, reach;

  __device__ void operator()(int64_t element) const {
    const int64_t head = element / (2 * reach + 1), distance = element % (2 * reach + 1) - reach;
    const int64_t from_first = distance + query_tiles * kTile;  // not negative where a diagonal has it
    const int64_t after = from_first / kTile, rest = from_first % kTile;
    float sum = 0;
    for (int64_t row = 0; row < batch && from_first >= 0; ++row) {
      const float* const of_row = diagonals + (row * heads + head) * num_diagonals * kDistances;
      if (after >= 1 && after <= num_diagonals) sum += of_row[(after - 1) * kDistances + kTile - 1 + rest];
      if (rest > 0 && after < num_diagonals) sum += of_row[after * kDistances + rest - 1];
    }
    gradient[element] = sum;
  }
};

int64_t num_diagonals(const AttentionProblem& problem) {
  return int64_t{num_blocks(problem.num_queries, kTile)} + num_blocks(problem.num_keys, kTile) - 1;
}

// Tiles of queries or of keys along x; query heads, or groups of them, of all rows along y.
dim3 grid_of(int64_t positions, int64_t per_block, int64_t heads) {
  ESPALIER_CHECK(heads <= 65535, heads, " heads of all rows in one call");
  return dim3(num_blocks(positions, per_block), static_cast<unsigned>(heads));
}

int shared_bytes(const AttentionProblem& problem, int tiles) {
  return static_cast<int>(tiles * kTile * (problem.head_size + 1) * sizeof(float));
}

// body(number of channels of a lane, as a constant)
template <class Body>
void with_channels(int64_t head_size, const Body& body) {
  ESPALIER_CHECK(head_size <= kMaxHeadSize, "heads of ", head_size, " channels; at most ", kMaxHeadSize);
  if (head_size <= 32) return body(std::integral_constant<int, 1>());
  if (head_size <= 64) return body(std::integral_constant<int, 2>());
  if (head_size <= 128) return body(std::integral_constant<int, 4>());
  body(std::integral_constant<int, 8>());
}

// Whether every row of an operand begins at a multiple of 16 bytes. Elements have two.
bool has_aligned_rows(const AttentionOperand& operand) {
  constexpr int64_t kElements = 8;
  return reinterpret_cast<uintptr_t>(operand.data) % 16 == 0 && operand.row_stride % kElements == 0 &&
         operand.group_stride % kElements == 0 && operand.member_stride % kElements == 0 &&
         operand.position_stride % kElements == 0;
}

}  // namespace

bool fits_tensor_cores(const AttentionProblem& problem, const AttentionGradients* gradients) {
  if (problem.type == AttentionType::kFloat || problem.head_size % 8 != 0 || problem.head_size > kMaxHeadSize)
    return false;
  for (const AttentionOperand* operand : {&problem.query, &problem.key, &problem.value, &problem.result})
    if (!has_aligned_rows(*operand)) return false;
  if (gradients == nullptr) return true;
  return has_aligned_rows(gradients->result) && has_aligned_rows(gradients->query) &&
         has_aligned_rows(gradients->key) && has_aligned_rows(gradients->value);
}

void attention_forward(const AttentionProblem& problem, Stream stream) {
  if (fits_tensor_cores(problem, nullptr))
    return problem.type == AttentionType::kBFloat16 ? attention_forward_bf16(problem, stream)
                                                    : attention_forward_fp16(problem, stream);
  const dim3 grid = grid_of(problem.num_queries, kTile, problem.batch * problem.groups * problem.members);
  with_channels(problem.head_size, [&](auto channels) {
    launch("attention_forward", forward_kernel<channels>, {grid, kThreads, shared_bytes(problem, 3), stream}, problem);
  });
}

int64_t attention_diagonals(const AttentionProblem& problem) { return num_diagonals(problem) * kDistances; }

void attention_backward(const AttentionProblem& problem, const AttentionGradients& gradients,
                        const AttentionScratch& scratch, Stream stream) {
  const int64_t groups = problem.batch * problem.groups, heads = groups * problem.members;
  const int bytes = shared_bytes(problem, 4);
  if (fits_tensor_cores(problem, &gradients)) {
    const bool bf16 = problem.type == AttentionType::kBFloat16;
    attention_row_dots(problem, gradients.result, scratch.row_dots, stream);
    (bf16 ? attention_key_gradient_bf16 : attention_key_gradient_fp16)(problem, gradients, scratch.row_dots, stream);
    (bf16 ? attention_query_gradient_bf16 : attention_query_gradient_fp16)(problem, gradients, scratch.row_dots,
                                                                           stream);
  } else {
    launch("attention_row_dots", row_dots_kernel,
           {grid_of(problem.num_queries, kThreads / kWarp, heads), kThreads, 0, stream}, problem, gradients.result,
           scratch.row_dots);
    const dim3 key_tiles = grid_of(problem.num_keys, kTile, groups);
    const dim3 query_tiles = grid_of(problem.num_queries, kTile, heads);
    with_channels(problem.head_size, [&](auto channels) {
      launch("attention_key_gradient", key_gradient_kernel<channels>, {key_tiles, kThreads, bytes, stream}, problem,
             gradients, scratch.row_dots);
      launch("attention_query_gradient", query_gradient_kernel<channels>, {query_tiles, kThreads, bytes, stream},
             problem, gradients, scratch.row_dots);
    });
  }
  if (gradients.relative_bias == nullptr) return;
  const int64_t diagonals = num_diagonals(problem);
  launch("attention_diagonals", diagonal_kernel, {grid_of(diagonals, 1, heads), kThreads, bytes, stream}, problem,
         gradients, scratch, diagonals);
  launch_for_each(
      "attention_relative_bias",
      DiagonalSums{scratch.diagonals, gradients.relative_bias, problem.batch, problem.groups * problem.members,
                   diagonals, int64_t{num_blocks(problem.num_queries, kTile)}, problem.relative_reach},
      problem.groups * problem.members * (2 * problem.relative_reach + 1), stream);
}

}  // namespace espalier::cuda
