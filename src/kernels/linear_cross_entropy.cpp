#include "kernels/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/captured.h"
#include "kernels/matmul.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using tensor::GradQueue;
using tensor::Param;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChunkTokens = 256;

struct RowResults {
  at::Tensor losses;        // [tokens] fp32, unmasked
  at::Tensor log_sum_exp;   // [tokens] fp32
};

RowResults forward_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels) {
  const int64_t tokens = x.size(0);
  RowResults results{at::empty({tokens}, at::kFloat), at::empty({tokens}, at::kFloat)};
  for (int64_t first = 0; first < tokens; first += kChunkTokens) {
    const int64_t count = std::min(kChunkTokens, tokens - first);
    const at::Tensor logits = matmul_forward(x.narrow(0, first, count), weight, {}).to(at::kFloat);
    const at::Tensor log_sum_exp = at::logsumexp(logits, {1});
    const at::Tensor label_logits = logits.gather(1, labels.narrow(0, first, count).unsqueeze(1)).squeeze(1);
    results.log_sum_exp.narrow(0, first, count).copy_(log_sum_exp);
    results.losses.narrow(0, first, count).copy_(log_sum_exp - label_logits);
  }
  return results;
}

at::Tensor masked_sum(const at::Tensor& losses, const at::Tensor& loss_mask) {
  return at::where(loss_mask == 0, at::zeros_like(losses), losses * loss_mask).sum();
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, Param* weight, const at::Tensor& labels,
                               const at::Tensor& loss_mask, GradQueue* queue) {
    const RowResults rows = forward_rows(x, weight->value, labels);
    capture(context, "weight", weight);
    capture(context, "queue", queue);
    tensor::save_for_backward(context, "linear_cross_entropy",
                              {{"x", x}, {"labels", labels}, {"loss_mask", loss_mask}, {"log_sum_exp", rows.log_sum_exp}});
    context->mark_non_differentiable({rows.losses});
    return {masked_sum(rows.losses, loss_mask), rows.losses};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    Param* weight = captured<Param>(context, "weight");
    GradQueue* queue = captured<GradQueue>(context, "queue");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &labels = saved[1], &log_sum_exp = saved[3];
    const at::Tensor token_grads = saved[2] * grads[0];
    const at::Tensor dx = at::empty_like(x);
    for (int64_t first = 0; first < x.size(0); first += kChunkTokens) {
      const int64_t count = std::min(kChunkTokens, x.size(0) - first);
      const at::Tensor rows = x.narrow(0, first, count);
      at::Tensor dlogits = matmul_forward(rows, weight->value, {}).to(at::kFloat);
      dlogits.sub_(log_sum_exp.narrow(0, first, count).unsqueeze(1)).exp_();
      dlogits.scatter_add_(1, labels.narrow(0, first, count).unsqueeze(1), at::full({count, 1}, -1.0, at::kFloat));
      dlogits = dlogits.mul_(token_grads.narrow(0, first, count).unsqueeze(1)).to(x.scalar_type());
      dx.narrow(0, first, count).copy_(matmul_input_grad(dlogits, weight->value));
      // One piece of work per chunk would be announced as several additions: the last chunk's push covers all.
      matmul_weight_grad(dlogits, rows, weight->grad);
    }
    queue->push(*weight, [] {});
    return {dx, {}, {}, {}, {}};
  }
};

}  // namespace

TokenLosses linear_cross_entropy(const at::Tensor& x, Param& weight, const at::Tensor& labels, const at::Tensor& loss_mask,
                                 GradQueue& queue) {
  ESPALIER_CHECK(x.dim() == 2 && x.size(1) == weight.value.size(1), "x is ", x.sizes(), ", weight ", weight.value.sizes());
  ESPALIER_CHECK(x.scalar_type() == weight.value.scalar_type(), "x is ", x.scalar_type(), ", weight ",
                 weight.value.scalar_type());
  ESPALIER_CHECK(labels.dim() == 1 && labels.size(0) == x.size(0) && labels.scalar_type() == at::kLong, labels.sizes());
  ESPALIER_CHECK(loss_mask.dim() == 1 && loss_mask.size(0) == x.size(0) && loss_mask.scalar_type() == at::kFloat,
                 loss_mask.sizes());
  if (!x.requires_grad() || !at::GradMode::is_enabled()) {
    const RowResults rows = forward_rows(x, weight.value, labels);
    return {masked_sum(rows.losses, loss_mask), rows.losses};
  }
  const variable_list results = LinearCrossEntropyFunction::apply(x, &weight, labels, loss_mask, &queue);
  return {results[0], results[1]};
}

}  // namespace espalier::kernels
