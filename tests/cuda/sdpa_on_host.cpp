#include "tests/cuda/sdpa_on_host.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <atomic>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/sdpa.h"
#include "tests/support/device_memory.h"

namespace espalier::cuda_test {
namespace {

using cuda::Sdpa;
using cuda::SdpaGradients;
using cuda::SdpaOperand;

std::atomic<int64_t> num_forward, num_backward, num_with_log_sum_exp;

// What the documentation of cuDNN's frontend and its checks ask for.
void check_operand(const SdpaOperand& operand) {
  ESPALIER_CHECK(reinterpret_cast<uintptr_t>(operand.data) % 16 == 0, "an operand that is not at 16 bytes");
  for (const int64_t stride : {operand.batch_stride, operand.head_stride, operand.position_stride})
    ESPALIER_CHECK(stride > 0 && stride % 8 == 0, "a stride of ", stride);
}

void check(const Sdpa& sdpa) {
  ESPALIER_CHECK(sdpa.type != kernels::AttentionType::kFloat, "fp32");
  ESPALIER_CHECK(sdpa.batch > 0 && sdpa.key_heads > 0 && sdpa.query_heads % sdpa.key_heads == 0, sdpa.query_heads,
                 " heads, ", sdpa.key_heads, " of keys");
  ESPALIER_CHECK(sdpa.head_size % 8 == 0 && sdpa.head_size <= 128, "heads of ", sdpa.head_size);
  ESPALIER_CHECK(sdpa.num_queries > 0 && sdpa.num_keys > 0, "no queries or no keys");
  ESPALIER_CHECK(!sdpa.causal || sdpa.num_queries == sdpa.num_keys, "causal over ", sdpa.num_queries, " by ",
                 sdpa.num_keys);
  for (const SdpaOperand* operand : {&sdpa.query, &sdpa.key, &sdpa.value, &sdpa.result}) check_operand(*operand);
}

// A matrix of one head, as numbers.
template <class T>
class Matrix {
 public:
  Matrix(const SdpaOperand& operand, int64_t row, int64_t head)
      : data_(static_cast<T*>(operand.data) + row * operand.batch_stride + head * operand.head_stride),
        stride_(operand.position_stride) {}
  T& operator()(int64_t position, int64_t channel) const { return data_[position * stride_ + channel]; }

  double dot(int64_t position, const Matrix& other, int64_t other_position, int64_t channels) const {
    double sum = 0;
    for (int64_t c = 0; c < channels; ++c)
      sum += static_cast<double>((*this)(position, c)) * static_cast<double>(other(other_position, c));
    return sum;
  }

 private:
  T* data_;
  int64_t stride_;
};

// The operands of one query head of one row.
template <class T>
struct HeadOf {
  HeadOf(const Sdpa& sdpa, int64_t row, int64_t head)
      : key_head(head / (sdpa.query_heads / sdpa.key_heads)),
        query(sdpa.query, row, head),
        key(sdpa.key, row, key_head),
        value(sdpa.value, row, key_head),
        result(sdpa.result, row, head),
        log_sum_exp(sdpa.log_sum_exp + (row * sdpa.query_heads + head) * sdpa.num_queries) {}
  int64_t key_head;
  Matrix<T> query, key, value, result;
  float* log_sum_exp;
};

int64_t end_of_keys(const Sdpa& sdpa, int64_t query) { return sdpa.causal ? query + 1 : sdpa.num_keys; }

template <class T>
void attend(const Sdpa& sdpa, int64_t row, int64_t head) {
  const HeadOf<T> of(sdpa, row, head);
  for (int64_t query = 0; query < sdpa.num_queries; ++query) {
    const int64_t end = end_of_keys(sdpa, query);
    std::vector<double> scores(static_cast<size_t>(end));
    double largest = -INFINITY, sum = 0;
    for (int64_t key = 0; key < end; ++key) {
      scores[key] = sdpa.scale * of.query.dot(query, of.key, key, sdpa.head_size);
      largest = std::max(largest, scores[key]);
    }
    for (const double score : scores) sum += std::exp(score - largest);
    const double log_sum_exp = largest + std::log(sum);
    for (int64_t channel = 0; channel < sdpa.head_size; ++channel) {
      double mean = 0;
      for (int64_t key = 0; key < end; ++key)
        mean += std::exp(scores[key] - log_sum_exp) * static_cast<double>(of.value(key, channel));
      of.result(query, channel) = static_cast<T>(static_cast<float>(mean));
    }
    if (sdpa.log_sum_exp != nullptr) of.log_sum_exp[query] = static_cast<float>(log_sum_exp);
  }
}

// Of all query heads that share a key head; these are added before they are rounded.
template <class T>
void differentiate(const Sdpa& sdpa, const SdpaGradients& gradients, int64_t row, int64_t key_head) {
  const auto elements = static_cast<size_t>(sdpa.num_keys * sdpa.head_size);
  std::vector<double> d_key(elements), d_value(elements), d_query(static_cast<size_t>(sdpa.head_size));
  const int64_t members = sdpa.query_heads / sdpa.key_heads;
  for (int64_t head = key_head * members; head < (key_head + 1) * members; ++head) {
    const HeadOf<T> of(sdpa, row, head);
    const Matrix<T> d_result(gradients.result, row, head);
    for (int64_t query = 0; query < sdpa.num_queries; ++query) {
      const double row_dot = d_result.dot(query, of.result, query, sdpa.head_size);
      std::fill(d_query.begin(), d_query.end(), 0);
      for (int64_t key = 0; key < end_of_keys(sdpa, query); ++key) {
        const double score = sdpa.scale * of.query.dot(query, of.key, key, sdpa.head_size);
        const double probability = std::exp(score - of.log_sum_exp[query]);
        const double d_score =
            sdpa.scale * probability * (d_result.dot(query, of.value, key, sdpa.head_size) - row_dot);
        for (int64_t c = 0; c < sdpa.head_size; ++c) {
          d_query[c] += d_score * static_cast<double>(of.key(key, c));
          d_key[key * sdpa.head_size + c] += d_score * static_cast<double>(of.query(query, c));
          d_value[key * sdpa.head_size + c] += probability * static_cast<double>(d_result(query, c));
        }
      }
      const Matrix<T> to(gradients.query, row, head);
      for (int64_t c = 0; c < sdpa.head_size; ++c) to(query, c) = static_cast<T>(static_cast<float>(d_query[c]));
    }
  }
  const Matrix<T> to_key(gradients.key, row, key_head), to_value(gradients.value, row, key_head);
  for (int64_t key = 0; key < sdpa.num_keys; ++key)
    for (int64_t c = 0; c < sdpa.head_size; ++c) {
      to_key(key, c) = static_cast<T>(static_cast<float>(d_key[key * sdpa.head_size + c]));
      to_value(key, c) = static_cast<T>(static_cast<float>(d_value[key * sdpa.head_size + c]));
    }
}

template <class T>
void attend_all(const Sdpa& sdpa) {
  for (int64_t row = 0; row < sdpa.batch; ++row)
    for (int64_t head = 0; head < sdpa.query_heads; ++head) attend<T>(sdpa, row, head);
}

template <class T>
void differentiate_all(const Sdpa& sdpa, const SdpaGradients& gradients) {
  for (int64_t row = 0; row < sdpa.batch; ++row)
    for (int64_t head = 0; head < sdpa.key_heads; ++head) differentiate<T>(sdpa, gradients, row, head);
}

}  // namespace

SdpaCalls sdpa_calls() { return {num_forward, num_backward, num_with_log_sum_exp}; }

}  // namespace espalier::cuda_test

namespace espalier::cuda {

const char* why_no_sdpa() { return nullptr; }

void sdpa_forward(const Sdpa& sdpa) {
  cuda_test::check(sdpa);
  ++cuda_test::num_forward;
  if (sdpa.log_sum_exp != nullptr) ++cuda_test::num_with_log_sum_exp;
  const DeviceMemory::Open open;
  const bool is_bf16 = sdpa.type == kernels::AttentionType::kBFloat16;
  (is_bf16 ? cuda_test::attend_all<c10::BFloat16> : cuda_test::attend_all<c10::Half>)(sdpa);
}

void sdpa_backward(const Sdpa& sdpa, const SdpaGradients& gradients) {
  cuda_test::check(sdpa);
  for (const SdpaOperand* operand : {&gradients.result, &gradients.query, &gradients.key, &gradients.value})
    cuda_test::check_operand(*operand);
  ESPALIER_CHECK(sdpa.log_sum_exp != nullptr, "a backward pass without the log-sum-exp");
  ESPALIER_CHECK(sdpa.num_queries > 1 || sdpa.num_keys > 1, "cuDNN refuses one query and one key");
  ++cuda_test::num_backward;
  const DeviceMemory::Open open;
  const bool is_bf16 = sdpa.type == kernels::AttentionType::kBFloat16;
  (is_bf16 ? cuda_test::differentiate_all<c10::BFloat16> : cuda_test::differentiate_all<c10::Half>)(sdpa, gradients);
}

}  // namespace espalier::cuda
