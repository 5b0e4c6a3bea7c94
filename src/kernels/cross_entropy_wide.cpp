// Cross entropy by fp32 products of ATen: for fp32, for fp16, and for bf16 without bf16 instructions.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cross_entropy_blocks.h"
#include "kernels/softmax_rows.h"

namespace espalier::kernels {
namespace {

// fp32 logits of one block, of all tokens.
constexpr int64_t kBlockBytes = 16 << 20;

LogitRounding rounding_of(at::ScalarType type) {
  return type == at::kBFloat16 ? LogitRounding::kBf16 : type == at::kHalf ? LogitRounding::kFp16 : LogitRounding::kNone;
}

// Calls visit(first, weight rows in fp32, logits [tokens, count] fp32) for each block of the vocabulary.
template <class Visit>
void for_each_block(const at::Tensor& x, const at::Tensor& weight, Visit visit) {
  const int64_t tokens = x.size(0), vocabulary = weight.size(0);
  const int64_t fitting = kBlockBytes / 4 / std::max<int64_t>(1, tokens) / 64 * 64;
  const int64_t block = std::clamp<int64_t>(fitting, 64, std::max<int64_t>(64, vocabulary));
  const at::Tensor storage = at::empty({tokens * std::min(block, vocabulary)}, x.options());
  for (int64_t first = 0; first < vocabulary; first += block) {
    const int64_t count = std::min(block, vocabulary - first);
    const at::Tensor rows = weight.narrow(0, first, count).to(at::kFloat);
    at::Tensor logits = storage.narrow(0, 0, tokens * count).view({tokens, count});
    at::mm_out(logits, x, rows.t());
    visit(first, rows, logits);
  }
}

}  // namespace

CrossEntropyRows wide_cross_entropy_forward(const CrossEntropyInput& input) {
  const int64_t tokens = input.x.size(0);
  const SoftmaxRowKernels& kernels = softmax_row_kernels();
  const LogitRounding rounding = rounding_of(input.x.scalar_type());
  const int64_t* labels = input.labels.const_data_ptr<int64_t>();
  std::vector<RowSums> sums(tokens);
  for_each_block(input.x.to(at::kFloat), input.weight, [&](int64_t first, const at::Tensor&, const at::Tensor& logits) {
    const int64_t count = logits.size(1);
    float* values = logits.mutable_data_ptr<float>();
    at::parallel_for(0, tokens, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        kernels.accumulate({values + row * count, count, labels[row] - first, rounding}, &sums[row]);
      }
    });
  });
  return finish_rows(sums);
}

at::Tensor wide_cross_entropy_backward(const CrossEntropyInput& input, const CrossEntropyBackward& backward) {
  const int64_t tokens = input.x.size(0);
  const SoftmaxRowKernels& kernels = softmax_row_kernels();
  const LogitRounding rounding = rounding_of(input.x.scalar_type());
  const int64_t* labels = input.labels.const_data_ptr<int64_t>();
  const float* log_sum_exp = backward.log_sum_exp.const_data_ptr<float>();
  const float* scales = backward.token_grads.const_data_ptr<float>();
  const at::Tensor x = input.x.to(at::kFloat);
  at::Tensor dx = at::zeros(x.sizes(), x.options());
  for_each_block(x, input.weight, [&](int64_t first, const at::Tensor& rows, const at::Tensor& logits) {
    const int64_t count = logits.size(1);
    float* values = logits.mutable_data_ptr<float>();
    at::parallel_for(0, tokens, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        kernels.gradient({values + row * count, count, labels[row] - first, rounding}, {log_sum_exp[row], scales[row]});
      }
    });
    dx.addmm_(logits, rows);
    at::Tensor weight_grad = backward.weight_grad.narrow(0, first, count);
    weight_grad.addmm_(logits.t(), x);
  });
  return dx.to(input.x.scalar_type());
}

}  // namespace espalier::kernels
