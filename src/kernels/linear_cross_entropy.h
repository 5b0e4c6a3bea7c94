// The output layer and its loss as one op: logits = x W^T (+ b), perhaps capped, loss = -log softmax(logits)[label],
// without an fp32 copy of the logits.
//
// The padded rows of the vocabulary take part in the softmax, as in Megatron. Logits are rounded to the compute type
// (as Megatron's are); the softmax and the sums run in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "tensor/param.h"

namespace espalier::kernels {

struct TokenLosses {
  at::Tensor sum;        // scalar fp32: sum of loss * loss_mask over all tokens; carries the graph
  at::Tensor per_token;  // [tokens] fp32, without graph: the unmasked losses
  // The same of the z-loss, which is not part of the above: undefined where its coefficient is 0.
  at::Tensor z_sum, z_per_token;
};

struct TokenTargets {
  at::Tensor labels;     // [tokens] int64, ids of the whole vocabulary
  at::Tensor loss_mask;  // [tokens] fp32
};

// The part of the vocabulary whose rows this rank has: first_row .. first_row + rows - 1, possibly none.
struct VocabularyShard {
  int64_t first_row = 0;
  // Turns what this shard knows of every token into what is true of the whole vocabulary, in place. Both [tokens] fp64
  // (a loss is the difference of two numbers that may be large):
  //   log_sum_exp: of the logits of the shard's rows, minus infinity if it has none -> log of the shards' sum of exp;
  //   label_logits: the label's logit if the shard has its row, else 0              -> sum over the shards.
  // Called once in every forward pass. Empty: the shard is the whole vocabulary.
  std::function<void(at::Tensor& log_sum_exp, at::Tensor& label_logits)> combine;
};

struct OutputTerms {
  tensor::Param* bias = nullptr;  // [rows], added to the logits before they are rounded; its gradient as the weight's
  double z_loss = 0;              // coefficient of log(sum of exp(logits))^2 (Chowdhery et al. 2022)
  double soft_cap = 0;  // c: logits become c tanh(logits / c) before they are rounded (Gemma 2); 0: they do not
};

// The same cap of fp32 logits, in place, without graph.
void soft_cap_logits(at::Tensor& logits, double soft_cap);

// x: [tokens, hidden] compute type; weight: [rows, hidden], the whole vocabulary or a shard of it.
// Backward, for the upstream gradient g (a scalar): dx is returned, weight.grad += ... through `queue`, which may defer
// it. dx comes from the shard's rows alone: its sum over the shards is the gradient. Tokens whose mask is 0 give no
// gradient.
TokenLosses linear_cross_entropy(const at::Tensor& x, tensor::Param& weight, const TokenTargets& targets,
                                 tensor::GradQueue& queue, const VocabularyShard& shard = {},
                                 const OutputTerms& terms = {});

}  // namespace espalier::kernels
