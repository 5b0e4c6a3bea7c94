// Attention one query at a time, in fp32: runs on every machine.
#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/internal/attention_problem.h"

namespace espalier::kernels {
namespace {

template <class T>
T* at_head(const AttentionOperand& operand, int64_t row, int64_t head) {
  return static_cast<T*>(operand.data) + row * operand.row_stride + head * operand.head_stride;
}

// The matrix of one head in fp32, as [position][feature] or [feature][position].
template <class T>
std::vector<float> load(const AttentionOperand& operand, int64_t row, int64_t head, int64_t positions, int64_t features,
                        bool transposed) {
  std::vector<float> matrix(positions * features);
  const T* const source = at_head<const T>(operand, row, head);
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t feature = 0; feature < features; ++feature) {
      const int64_t index = transposed ? feature * positions + position : position * features + feature;
      matrix[index] = static_cast<float>(source[position * operand.position_stride + feature]);
    }
  }
  return matrix;
}

template <class T>
void store(const float* matrix, const AttentionOperand& operand, int64_t row, int64_t head, int64_t positions,
           int64_t features) {
  T* const target = at_head<T>(operand, row, head);
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t feature = 0; feature < features; ++feature) {
      target[position * operand.position_stride + feature] = static_cast<T>(matrix[position * features + feature]);
    }
  }
}

// to[i] += factor * from[i].
inline void add_scaled(float* to, const float* from, float factor, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

// One head of one row of the batch.
struct Head {
  const AttentionProblem& problem;
  int64_t row, head;

  int64_t num_keys() const { return problem.first_query + problem.num_queries; }

  // scores[first .. last] of a query: scale * q k^T + bias. `keys` is [feature][key].
  void scores(const float* query, const std::vector<float>& keys, int64_t first, int64_t last, float* scores) const {
    std::fill(scores + first, scores + last + 1, 0.0f);
    for (int64_t feature = 0; feature < problem.head_size; ++feature) {
      add_scaled(scores + first, &keys[feature * num_keys() + first], query[feature] * problem.scale, last - first + 1);
    }
    if (problem.slopes == nullptr) return;
    for (int64_t key = first; key <= last; ++key) scores[key] += problem.slopes[head] * static_cast<float>(key - last);
  }

  // factors[first .. last]: 0 where the probability is dropped, else 1 / (1 - p).
  void keep_factors(int64_t position, int64_t first, int64_t last, float* factors) const {
    const uint64_t sample = static_cast<uint64_t>(problem.sample_numbers[row]);
    const uint32_t head_word = static_cast<uint32_t>(head) + (static_cast<uint32_t>(sample >> 32) << 16);
    for (int64_t quad = first / 4; quad <= last / 4; ++quad) {
      const tensor::PhiloxBlock block =
          tensor::philox4x32(problem.key_of_site, {{static_cast<uint32_t>(quad), static_cast<uint32_t>(position), head_word,
                                                    static_cast<uint32_t>(sample)}});
      for (int64_t key = std::max(first, 4 * quad); key <= std::min(last, 4 * quad + 3); ++key) {
        factors[key] = block.word[key % 4] < problem.drop_below ? 0.0f : problem.keep_scale;
      }
    }
  }
};

template <class T>
void forward_head(const Head& task) {
  const AttentionProblem& problem = task.problem;
  const int64_t features = problem.head_size, queries = problem.num_queries, keys = task.num_keys();
  const std::vector<float> query = load<T>(problem.query, task.row, task.head, queries, features, false);
  const std::vector<float> key = load<T>(problem.key, task.row, task.head, keys, features, true);
  const std::vector<float> value = load<T>(problem.value, task.row, task.head, keys, features, false);
  std::vector<float> result(queries * features, 0.0f), scores(keys), factors(keys, 1.0f);
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t first = first_visible_key(problem, task.row, i), last = problem.first_query + i;
    task.scores(&query[i * features], key, first, last, scores.data());
    const float largest = *std::max_element(&scores[first], &scores[last] + 1);
    float sum = 0;
    for (int64_t k = first; k <= last; ++k) sum += scores[k] = std::exp(scores[k] - largest);
    if (problem.dropout) task.keep_factors(last, first, last, factors.data());
    for (int64_t k = first; k <= last; ++k) {
      add_scaled(&result[i * features], &value[k * features], scores[k] * factors[k] / sum, features);
    }
    if (problem.log_sum_exp != nullptr) {
      problem.log_sum_exp[(task.row * problem.heads + task.head) * queries + i] = largest + std::log(sum);
    }
  }
  store<T>(result.data(), problem.result, task.row, task.head, queries, features);
}

template <class T>
void backward_head(const Head& task, const AttentionGradients& gradients) {
  const AttentionProblem& problem = task.problem;
  const int64_t features = problem.head_size, queries = problem.num_queries, keys = task.num_keys();
  const auto matrix = [&](const AttentionOperand& operand, int64_t positions, bool transposed) {
    return load<T>(operand, task.row, task.head, positions, features, transposed);
  };
  const std::vector<float> query = matrix(problem.query, queries, false), key = matrix(problem.key, keys, false);
  const std::vector<float> key_transposed = matrix(problem.key, keys, true);
  const std::vector<float> value_transposed = matrix(problem.value, keys, true);
  const std::vector<float> result = matrix(problem.result, queries, false);
  const std::vector<float> d_result = matrix(gradients.result, queries, false);
  std::vector<float> d_query(queries * features, 0.0f), d_key(keys * features, 0.0f), d_value(keys * features, 0.0f);
  std::vector<float> scores(keys), d_probability(keys), factors(keys, 1.0f);
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t first = first_visible_key(problem, task.row, i), last = problem.first_query + i;
    const float log_sum_exp = problem.log_sum_exp[(task.row * problem.heads + task.head) * queries + i];
    task.scores(&query[i * features], key_transposed, first, last, scores.data());
    if (problem.dropout) task.keep_factors(last, first, last, factors.data());
    std::fill(d_probability.begin() + first, d_probability.begin() + last + 1, 0.0f);
    float row_sum = 0;  // of gradient times result = sum over keys of P dP
    for (int64_t f = 0; f < features; ++f) {
      const float d = d_result[i * features + f];
      add_scaled(&d_probability[first], &value_transposed[f * keys + first], d, last - first + 1);
      row_sum += d * result[i * features + f];
    }
    for (int64_t k = first; k <= last; ++k) {
      const float probability = std::exp(scores[k] - log_sum_exp);
      const float d_score = probability * (d_probability[k] * factors[k] - row_sum) * problem.scale;
      add_scaled(&d_value[k * features], &d_result[i * features], probability * factors[k], features);
      add_scaled(&d_query[i * features], &key[k * features], d_score, features);
      add_scaled(&d_key[k * features], &query[i * features], d_score, features);
    }
  }
  store<T>(d_query.data(), gradients.query, task.row, task.head, queries, features);
  store<T>(d_key.data(), gradients.key, task.row, task.head, keys, features);
  store<T>(d_value.data(), gradients.value, task.row, task.head, keys, features);
}

// Calls body(Head, T{}) for every head of every row.
template <class Body>
void for_each_head(const AttentionProblem& problem, const Body& body) {
  at::parallel_for(0, problem.batch * problem.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      const Head task{problem, pair / problem.heads, pair % problem.heads};
      switch (problem.type) {
        case AttentionType::kFloat: body(task, float{}); break;
        case AttentionType::kBFloat16: body(task, c10::BFloat16{}); break;
        case AttentionType::kHalf: body(task, c10::Half{}); break;
      }
    }
  });
}

}  // namespace

void attention_forward(const AttentionProblem& problem) {
  for_each_head(problem, [](const Head& task, auto type) { forward_head<decltype(type)>(task); });
}

void attention_backward(const AttentionProblem& problem, const AttentionGradients& gradients) {
  for_each_head(problem, [&](const Head& task, auto type) { backward_head<decltype(type)>(task, gradients); });
}

}  // namespace espalier::kernels
