// The work of linear_cross_entropy, block of vocabulary by block, so that logits of all tokens never exist at once.
//
// Forward: per block, logits = x W_b^T, and each row's running softmax sum. Backward, with the row's log-sum-exp known:
// per block, logits again, their gradients, then dx += dlogits W_b and dW_b += dlogits^T x, in as few visits of dW as
// can be; or dx at once and dW later, each from the logits again. Logits of the first columns are kept for the backward
// pass where they fit into a budget, and read back instead of being computed again.
//
// Two ways: bf16 panels (matmul_blocked.h) where the machine has bf16 products, else fp32 products (wide_product.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/internal/row_kernels.h"
#include "kernels/matmul_bf16.h"
#include "tensor/param.h"

namespace espalier::kernels {

// Beyond this they are computed again, so that memory stays bounded.
inline constexpr int64_t kKeptLogitBytes = 256 << 20;

struct CrossEntropyInput {
  const at::Tensor& x;       // [tokens, hidden]
  const at::Tensor& weight;  // [vocabulary, hidden], type of x; perhaps no rows
  const at::Tensor& labels;  // [tokens] int64, row of the weight; outside: another shard's label
  at::Tensor bias = {};      // [vocabulary], added to the logits before they are rounded; undefined: none
  // The logits become soft_cap tanh(logits / soft_cap), after the bias and before they are rounded; 0: they do not.
  double soft_cap = 0;
};

struct CrossEntropyRows {
  std::vector<SoftmaxSums> sums;  // [tokens]
  at::Tensor kept_logits;         // of the first blocks of the vocabulary, as each way keeps them; may be empty
};

struct CrossEntropyBackward {
  const at::Tensor& log_sum_exp;  // [tokens] fp32
  const at::Tensor& token_grads;  // [tokens] fp32: upstream gradient of each token's loss
  at::Tensor log_grads;           // [tokens] fp32: that of its log-sum-exp by itself; undefined: zeros
  const at::Tensor& kept_logits;  // of the forward pass; a device's ops use them up
  // Which gradients are wanted:
  bool input_grad = true;       // dx is returned, else an undefined tensor
  at::Tensor weight_grad = {};  // [vocabulary, hidden] fp32, added to or overwritten; undefined: not wanted
  at::Tensor bias_grad = {};    // [vocabulary] fp32, added to; undefined: not wanted
  tensor::GradWrite weight_write = tensor::GradWrite::kAdd;  // kOverwrite: for the functions below, with tokens
};

// From the arrays above.
class LogitSources {
 public:
  LogitSources(const CrossEntropyBackward& backward, double soft_cap);
  LogitGradient of(int64_t token) const {
    return {log_sum_exp_[token], losses_[token], log_sums_ == nullptr ? 0 : log_sums_[token], inverse_cap_};
  }

 private:
  const float *log_sum_exp_, *losses_, *log_sums_;
  float inverse_cap_;
};

// One row of fp32 logits, or a part of it, capped; nothing happens where the cap is 0.
void cap_logits(float* logits, int64_t count, double soft_cap);

// `kept_bytes`: room for logits that are kept; 0: none are.
CrossEntropyRows panel_cross_entropy_forward(const Bf16Kernels& kernels, const CrossEntropyInput& input,
                                             int64_t kept_bytes);
at::Tensor panel_cross_entropy_backward(const Bf16Kernels& kernels, const CrossEntropyInput& input,
                                        const CrossEntropyBackward& backward);

CrossEntropyRows wide_cross_entropy_forward(const CrossEntropyInput& input, bool keep_logits);
at::Tensor wide_cross_entropy_backward(const CrossEntropyInput& input, const CrossEntropyBackward& backward);

}  // namespace espalier::kernels
