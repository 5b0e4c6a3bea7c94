// Attention of single queries: reads every key and value once, in the type and place where they lie, and makes no tile.
//
// Per query, over chunks of keys: x = scale q k + slope (key - query), the online softmax of attention_forward.cpp, and
// o = 2^(m - m') o + sum of p v. In fp32; probabilities are not rounded.
#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/internal/attention_tiles.h"

namespace espalier::kernels {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr int64_t kChunk = 128;  // keys; their scores and the result stay in the first-level cache

char* address(const AttentionOperand& operand, AttentionType type, int64_t row, int64_t head, int64_t position) {
  const int64_t value_bytes = type == AttentionType::kFloat ? 4 : 2;
  return static_cast<char*>(operand.data) +
         value_bytes * (row * operand.row_stride + head * operand.head_stride + position * operand.position_stride);
}

void attend(const AttentionProblem& problem, const TileOps& ops, int64_t row, int64_t head, int64_t query,
            std::vector<float>& buffer) {
  const int64_t features = problem.head_size, position = problem.first_query + query;
  const int64_t padded = (features + kFeatureStep - 1) / kFeatureStep * kFeatureStep;  // store_rows reads whole vectors
  buffer.assign(2 * padded, 0.0f);
  float* const q = buffer.data();
  float* const result = q + padded;
  const float scale = problem.scale * kLog2E;
  ops.add_rows(problem.type, &scale, address(problem.query, problem.type, row, head, query), 0, 1, features, q);
  const float slope = problem.slopes == nullptr ? 0.0f : problem.slopes[head] * kLog2E;
  float max = std::numeric_limits<float>::lowest(), sum = 0;
  for (int64_t key = first_visible_key(problem, row, query); key <= position; key += kChunk) {
    const int64_t count = std::min(kChunk, position + 1 - key);
    float scores[kChunk + 1];  // one more: the factor of what came before
    ops.dot_rows(problem.type, q, address(problem.key, problem.type, row, head, key), problem.key.position_stride,
                 count, features, scores);
    float new_max = max;
    for (int64_t i = 0; i < count; ++i) {
      scores[i] += slope * static_cast<float>(key + i - position);
      new_max = scores[i] > new_max ? scores[i] : new_max;
    }
    for (int64_t i = 0; i < count; ++i) scores[i] -= new_max;
    scores[count] = max - new_max;
    max = new_max;
    ops.exp2(scores, count + 1);
    const float before = scores[count];
    sum *= before;
    for (int64_t i = 0; i < count; ++i) sum += scores[i];
    for (int64_t feature = 0; feature < features; ++feature) result[feature] *= before;
    ops.add_rows(problem.type, scores, address(problem.value, problem.type, row, head, key),
                 problem.value.position_stride, count, features, result);
  }
  ops.store_rows(problem.type, result, padded, 1.0f / sum, 1, features,
                 address(problem.result, problem.type, row, head, query), 0);
}

}  // namespace

void attention_few_queries(const AttentionProblem& problem) {
  const TileOps& ops = tile_ops(AttentionType::kFloat);
  const int64_t queries = problem.num_queries;
  at::parallel_for(0, problem.batch * problem.heads * queries, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> buffer;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t pair = i / queries;
      attend(problem, ops, pair / problem.heads, pair % problem.heads, i % queries, buffer);
    }
  });
}

}  // namespace espalier::kernels
