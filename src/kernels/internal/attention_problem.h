// One call of attention as raw pointers and numbers: what the CPU kernels see. Plain header, no torch.
#pragma once

#include <cstdint>

#include "spec/attention_backend.h"
#include "tensor/rng.h"

namespace espalier::kernels {

enum class AttentionType { kFloat, kBFloat16, kHalf };

// A matrix per (row of the batch, query head); query heads are numbered (group, member of the group). Element
// (position, feature) is at data + row * row_stride + group * group_stride + member * member_stride +
// position * position_stride + feature, strides in elements. Keys and values, which the members share, have
// member_stride 0.
struct AttentionOperand {
  void* data = nullptr;
  int64_t row_stride = 0, group_stride = 0, member_stride = 0, position_stride = 0;
};

struct AttentionProblem {
  spec::AttentionBackend backend = spec::AttentionBackend::kFlash;  // not the CPU kernels' to read
  AttentionType type = AttentionType::kFloat;
  int64_t batch = 0, groups = 0, members = 0, head_size = 0;  // members: query heads of a group
  int64_t num_queries = 0, num_keys = 0;  // of every row; with a cache, num_keys: of the longest row
  // [b] positions that each row has in the cache, before query 0: its keys are those and num_queries more. Null: none.
  const int64_t* cache_lengths = nullptr;
  AttentionOperand query, key, value, result;
  // [b, query heads, num_queries], for the backward pass of the same backend; null: not wanted.
  float* log_sum_exp = nullptr;
  // Of each query, before a cap and any bias, of the keys that it sees; minus infinity without one. Forward only.
  float* max_logits = nullptr;  // as log_sum_exp

  // The mask: tensor/attention_context.h.
  bool causal = true;                  // else a query sees all keys of its row
  const int32_t* first_key = nullptr;  // [b, num_queries]; null: 0
  const int32_t* last_key = nullptr;   // [b, num_queries]; null: as `causal` says
  int64_t window = 0;                  // 0: unlimited
  const float* slopes = nullptr;       // [query heads]; null: no ALiBi
  float scale = 1;
  float soft_cap = 0;  // of scaled scores, before any bias; 0: none
  // Of each query head, by distance key - query = -reach .. reach: [query heads, 2 * reach + 1]; null: none. No query
  // sees a key that is farther away.
  const float* relative_bias = nullptr;
  int64_t relative_reach = 0;

  // Dropout of probabilities (kernels/dropout.h); keep_scale = 1 / (1 - probability).
  bool dropout = false;
  uint32_t drop_below = 0;
  float keep_scale = 1;
  tensor::PhiloxKey key_of_site{};
  const int64_t* sample_numbers = nullptr;  // [b]
  int64_t first_head = 0;                   // added to the number of a query head in the counter

  int64_t heads() const { return groups * members; }  // of queries
  int64_t num_distances() const { return 2 * relative_reach + 1; }
};

struct AttentionGradients {
  AttentionOperand result;             // in: gradient of the result
  AttentionOperand query, key, value;  // out: written, not accumulated
  float* relative_bias = nullptr;      // out: [query heads, 2 * reach + 1], written; null: not wanted
};

// Position of query 0 of a row.
inline int64_t first_query(const AttentionProblem& problem, int64_t row) {
  return problem.cache_lengths != nullptr ? problem.cache_lengths[row] : 0;
}

inline int64_t num_keys_of_row(const AttentionProblem& problem, int64_t row) {
  return problem.cache_lengths != nullptr ? problem.cache_lengths[row] + problem.num_queries : problem.num_keys;
}

// The bias of a query head at distance 0, the others around it; null: none.
inline const float* relative_bias_of(const AttentionProblem& problem, int64_t head) {
  if (problem.relative_bias == nullptr) return nullptr;
  return problem.relative_bias + head * problem.num_distances() + problem.relative_reach;
}

struct VisibleKeys {
  int64_t first, last;  // none where first > last
  bool none() const { return first > last; }
};

// The keys that query `query` (counted from num_queries' 0) of a row sees.
inline VisibleKeys visible_keys(const AttentionProblem& problem, int64_t row, int64_t query) {
  const int64_t position = first_query(problem, row) + query, end = num_keys_of_row(problem, row) - 1;
  const int64_t entry = row * problem.num_queries + query;
  VisibleKeys keys{0, problem.causal ? position : end};
  if (problem.first_key != nullptr && problem.first_key[entry] > 0) keys.first = problem.first_key[entry];
  if (problem.last_key != nullptr) keys.last = problem.last_key[entry] < end ? problem.last_key[entry] : end;
  if (problem.window > 0 && position - problem.window + 1 > keys.first) keys.first = position - problem.window + 1;
  return keys;
}

// Every element of a result is computed in the same order for any number of threads.
void attention_forward(const AttentionProblem& problem);
void attention_backward(const AttentionProblem& problem, const AttentionGradients& gradients);

// The forward pass for generation: few queries against many keys, as fast as these can be read. No dropout, no
// log-sum-exp.
inline constexpr int64_t kFewQueries = 8;
void attention_few_queries(const AttentionProblem& problem);

}  // namespace espalier::kernels
