// One (query, key) of attention: what is seen, its bias and cap, and whether it is dropped. What all kernels of
// attention share.
//
// Exponents are to base 2. Positions are below 2^31, so what a query sees is kept in 32 bits.
#pragma once

#include "kernels/cuda/element_math.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace espalier::cuda {

using kernels::AttentionOperand;

// The keys first .. last; none where first > last.
struct Keys {
  int first, last;
  __device__ bool none() const { return first > last; }
  __device__ bool has(int64_t key) const { return first <= key && key <= last; }
};

// One query head of one row of the batch.
struct Pair {
  AttentionProblem problem;
  int row, group, member, head;
  int before, num_keys;  // position of query 0, and how many keys the row has

  __device__ int64_t offset(const AttentionOperand& operand, int64_t position) const {
    return row * operand.row_stride + group * operand.group_stride + member * operand.member_stride +
           position * operand.position_stride;
  }
  __device__ int64_t stats(int64_t query) const {  // index into [b, query heads, num_queries]
    return (row * problem.groups * problem.members + head) * problem.num_queries + query;
  }
  __device__ int64_t position(int64_t query) const { return before + query; }
  // kernels/internal/attention_problem.h's visible_keys; none for a query beyond the end.
  __device__ Keys keys_of(int64_t query) const {
    if (query >= problem.num_queries) return {0, -1};
    const int end = static_cast<int>(num_keys) - 1, own = static_cast<int>(position(query));
    const int64_t entry = row * problem.num_queries + query;
    Keys keys{0, problem.causal ? own : end};
    if (problem.first_key != nullptr) keys.first = max(keys.first, problem.first_key[entry]);
    if (problem.last_key != nullptr) keys.last = min(problem.last_key[entry], end);
    if (problem.window > 0 && own - problem.window + 1 > keys.first)
      keys.first = static_cast<int>(own - problem.window + 1);
    return keys;
  }
  // The exponent of a probability; minus infinity where the key is not seen.
  __device__ float exponent(float product, int64_t query, int64_t key, const Keys& seen) const {
    return seen.has(key) ? biased(product, query, key) : -INFINITY;
  }
  // Also of a key that is not seen, whatever it is then.
  __device__ float biased(float product, int64_t query, int64_t key) const {
    const int distance = static_cast<int>(key) - static_cast<int>(position(query));
    float bias = problem.slopes != nullptr ? problem.slopes[head] * kLog2E * static_cast<float>(distance) : 0;
    if (problem.relative_bias != nullptr) {
      const int reach = static_cast<int>(problem.relative_reach), within = min(max(distance, -reach), reach);
      const float* const of_head = problem.relative_bias + head * (2 * problem.relative_reach + 1) + reach;
      bias = fmaf(of_head[within], kLog2E, bias);
    }
    if (problem.soft_cap != 0) return fmaf(problem.soft_cap * kLog2E, cap_tanh(product), bias);
    return fmaf(product, problem.scale * kLog2E, bias);
  }
  __device__ float cap_tanh(float product) const { return tanhf(product * problem.scale / problem.soft_cap); }
  // The gradient of a scaled product by that of its score.
  __device__ float cap_slope(float product) const {
    if (problem.soft_cap == 0) return 1;
    const float t = cap_tanh(product);
    return 1 - t * t;
  }
  // 0 or 1 / (1 - p)
  __device__ float keep_factor(int64_t query, int64_t key) const {
    if (!problem.dropout) return 1;
    const uint32_t word = mask_word(problem.key_of_site.word[0], problem.key_of_site.word[1], mask_place(query),
                                    static_cast<uint32_t>(key));
    return word < problem.drop_below ? 0 : problem.keep_scale;
  }
  // Bit i: the probability of key 4 group + i is kept. For problems with dropout.
  __device__ uint32_t kept_of_four(int64_t query, int64_t group) const {
    const PhiloxWords words = mask_words(problem.key_of_site.word[0], problem.key_of_site.word[1], mask_place(query),
                                         static_cast<uint32_t>(group));
    uint32_t bits = 0;
    ESPALIER_UNROLL
    for (int i = 0; i < 4; ++i) bits |= (words.word[i] < problem.drop_below ? 0u : 1u) << i;
    return bits;
  }
  __device__ MaskPlace mask_place(int64_t query) const {
    return {static_cast<uint32_t>(position(query)), static_cast<uint32_t>(problem.first_head + head),
            static_cast<uint64_t>(problem.sample_numbers[row])};
  }
};

// `number`: of a pair, row by row.
__device__ inline Pair pair_of(const AttentionProblem& problem, int64_t number) {
  // There are not as many heads in a launch as 32 bits have numbers: their divisions are short.
  const auto members = static_cast<unsigned>(problem.members), heads = static_cast<unsigned>(problem.groups) * members;
  const auto all = static_cast<unsigned>(number), row = all / heads, head = all % heads;
  Pair pair{problem, static_cast<int>(row), static_cast<int>(head / members), static_cast<int>(head % members),
            static_cast<int>(head)};
  const bool cached = problem.cache_lengths != nullptr;
  pair.before = cached ? static_cast<int>(problem.cache_lengths[row]) : 0;
  pair.num_keys = static_cast<int>(cached ? pair.before + problem.num_queries : problem.num_keys);
  return pair;
}

// What the queries of a tile see, together: no key outside `any`, and every query all of `all`.
struct KeysOfQueries {
  Keys any, all;
};
// The same on every lane of a warp, which calls it as a whole.
template <int kQueries>
__device__ KeysOfQueries keys_of_queries(const Pair& pair, int first_query) {
  if (pair.problem.first_key == nullptr && pair.problem.last_key == nullptr) {
    // Of two queries, the later one sees no key before those of the other, and ends no earlier.
    const int end = first_query + kQueries, last = min(end, static_cast<int>(pair.problem.num_queries)) - 1;
    if (last < first_query) return {{INT32_MAX, -1}, {0, -1}};
    const Keys of_first = pair.keys_of(first_query), of_last = pair.keys_of(last);
    return {{of_first.first, of_last.last}, {of_last.first, last == end - 1 ? of_first.last : -1}};
  }
  Keys any{INT32_MAX, -1}, all{0, INT32_MAX};
  for (int query = threadIdx.x % kWarp; query < (kQueries + kWarp - 1) / kWarp * kWarp; query += kWarp) {
    const Keys keys = pair.keys_of(first_query + query % kQueries);
    if (keys.none()) {
      all.last = -1;
      continue;
    }
    any = {min(any.first, keys.first), max(any.last, keys.last)};
    all = {max(all.first, keys.first), min(all.last, keys.last)};
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    any.first = min(any.first, __shfl_xor_sync(kAllLanes, any.first, distance));
    any.last = max(any.last, __shfl_xor_sync(kAllLanes, any.last, distance));
    all.first = max(all.first, __shfl_xor_sync(kAllLanes, all.first, distance));
    all.last = min(all.last, __shfl_xor_sync(kAllLanes, all.last, distance));
  }
  return {any, all};
}

}  // namespace espalier::cuda
