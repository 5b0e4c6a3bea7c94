// The output layer and its loss as one op: logits = x W^T, loss = -log softmax(logits)[label], without an fp32 copy
// of the logits.
//
// The padded rows of the vocabulary take part in the softmax, as in Megatron. Logits are rounded to the compute type
// (as Megatron's are); the softmax and the sums run in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensor/param.h"

namespace espalier::kernels {

struct TokenLosses {
  at::Tensor sum;        // scalar fp32: sum of loss * loss_mask over all tokens; carries the graph
  at::Tensor per_token;  // [tokens] fp32, without graph: the unmasked losses
};

// x: [tokens, hidden] compute type; weight: [vocabulary, hidden]; labels: [tokens] int64; loss_mask: [tokens] fp32.
// Backward, for the upstream gradient g (a scalar): dx is returned, weight.grad += ... through `queue`. Tokens whose
// mask is 0 give no gradient.
TokenLosses linear_cross_entropy(const at::Tensor& x, tensor::Param& weight, const at::Tensor& labels,
                                 const at::Tensor& loss_mask, tensor::GradQueue& queue);

}  // namespace espalier::kernels
