// Attention of single queries: reads every key and value where it is, in its type, once for all query heads of its
// group, and makes no tile.
//
// Per query, over chunks of keys: x = scale q k + slope (key - query) + bias of that distance, the online softmax of
// attention_forward.cpp, and o = 2^(m - m') o + sum of p v. In fp32; probabilities are not rounded.
#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/internal/attention_tiles.h"
#include "kernels/internal/row_dispatch.h"

namespace espalier::kernels {
namespace {

constexpr float kLog2OfE = 1.44269504088896340736f;
constexpr int64_t kChunk = 128;  // keys; their scores and the result stay in the first-level cache

char* address(const AttentionOperand& operand, AttentionType type, int64_t row, int64_t group, int64_t member,
              int64_t position) {
  const int64_t value_bytes = type == AttentionType::kFloat ? 4 : 2;
  return static_cast<char*>(operand.data) +
         value_bytes * (row * operand.row_stride + group * operand.group_stride + member * operand.member_stride +
                        position * operand.position_stride);
}

// A query of some query heads of a group: a chunk of keys is read once for all of them.
struct Task {
  int64_t row, group, first_member, num_members, query;
};

// The online softmax of one query head.
struct Running {
  float *query, *result;  // [padded] fp32; the query times the scale
  float slope, max, sum;
  const float* relative;  // bias by distance, at distance 0; null: none
};

// Adds the keys `key` .. `key + count - 1`; `keys` and `values` are where these are.
void add_chunk(const AttentionProblem& problem, const TileOps& ops, Running& head, const char* keys, const char* values,
               int64_t key, int64_t count, int64_t position) {
  const int64_t features = problem.head_size;
  float scores[kChunk + 1];  // one more: the factor of what came before
  ops.dot_rows(problem.type, head.query, keys, problem.key.position_stride, count, features, scores);
  if (problem.soft_cap != 0) row_kernels().soft_cap(scores, count, problem.soft_cap * kLog2OfE);
  if (head.relative != nullptr)
    for (int64_t i = 0; i < count; ++i) scores[i] += head.relative[key + i - position] * kLog2OfE;
  float new_max = head.max;
  for (int64_t i = 0; i < count; ++i) {
    scores[i] += head.slope * static_cast<float>(key + i - position);
    new_max = scores[i] > new_max ? scores[i] : new_max;
  }
  for (int64_t i = 0; i < count; ++i) scores[i] -= new_max;
  scores[count] = head.max - new_max;
  head.max = new_max;
  ops.exp2(scores, count + 1);
  const float before = scores[count];
  head.sum *= before;
  for (int64_t i = 0; i < count; ++i) head.sum += scores[i];
  for (int64_t feature = 0; feature < features; ++feature) head.result[feature] *= before;
  ops.add_rows(problem.type, scores, values, problem.value.position_stride, count, features, head.result);
}

void attend(const AttentionProblem& problem, const TileOps& ops, const Task& task, std::vector<float>& buffer) {
  const int64_t features = problem.head_size, position = first_query(problem, task.row) + task.query;
  const int64_t padded = (features + kFeatureStep - 1) / kFeatureStep * kFeatureStep;  // store_rows reads whole vectors
  const auto lies_at = [&](const AttentionOperand& operand, int64_t member, int64_t at) {
    return address(operand, problem.type, task.row, task.group, member, at);
  };
  buffer.assign(task.num_members * 2 * padded, 0.0f);
  std::vector<Running> heads(task.num_members);
  for (int64_t i = 0; i < task.num_members; ++i) {
    const int64_t member = task.first_member + i, number = task.group * problem.members + member;
    const float slope = problem.slopes == nullptr ? 0.0f : problem.slopes[number] * kLog2OfE;
    float* const query = buffer.data() + i * 2 * padded;
    heads[i] = {
        query, query + padded, slope, std::numeric_limits<float>::lowest(), 0, relative_bias_of(problem, number)};
    const float scale = problem.scale * kLog2OfE;
    ops.add_rows(problem.type, &scale, lies_at(problem.query, member, task.query), 0, 1, features, query);
  }
  const VisibleKeys seen = visible_keys(problem, task.row, task.query);
  for (int64_t key = seen.first; key <= seen.last; key += kChunk) {
    const int64_t count = std::min(kChunk, seen.last + 1 - key);
    for (Running& head : heads) {
      add_chunk(problem, ops, head, lies_at(problem.key, 0, key), lies_at(problem.value, 0, key), key, count, position);
    }
  }
  for (int64_t i = 0; i < task.num_members; ++i) {
    ops.store_rows(problem.type, heads[i].result, padded, seen.none() ? 0.0f : 1.0f / heads[i].sum, 1, features,
                   lies_at(problem.result, task.first_member + i, task.query), 0);
  }
}

}  // namespace

void attention_few_queries(const AttentionProblem& problem) {
  const TileOps& ops = tile_ops(AttentionType::kFloat);
  // A group's query heads stay together unless that leaves threads without work.
  const int64_t queries = problem.num_queries, groups = problem.batch * problem.groups;
  const int64_t wanted = std::max<int64_t>(1, at::get_num_threads() / std::max<int64_t>(1, groups * queries));
  const int64_t together = (problem.members + wanted - 1) / wanted;
  const int64_t parts = (problem.members + together - 1) / together;
  at::parallel_for(0, groups * parts * queries, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> buffer;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i / queries, group = part / parts, first = part % parts * together;
      attend(problem, ops,
             {group / problem.groups, group % problem.groups, first, std::min(together, problem.members - first),
              i % queries},
             buffer);
    }
  });
}

}  // namespace espalier::kernels
