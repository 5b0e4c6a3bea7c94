#include "kernels/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/error.h"
#include "kernels/captured.h"
#include "kernels/cross_entropy_blocks.h"
#include "kernels/matmul_blocked.h"
#include "tensor/saved.h"

namespace espalier::kernels {

CrossEntropyRows finish_rows(const std::vector<SoftmaxSums>& sums) {
  const int64_t tokens = static_cast<int64_t>(sums.size());
  CrossEntropyRows rows{at::empty({tokens}, at::TensorOptions().dtype(at::kFloat)),
                        at::empty({tokens}, at::TensorOptions().dtype(at::kFloat)),
                        at::empty({0}, at::TensorOptions().dtype(at::kFloat))};
  float* losses = rows.losses.mutable_data_ptr<float>();
  float* log_sum_exp = rows.log_sum_exp.mutable_data_ptr<float>();
  for (int64_t token = 0; token < tokens; ++token) {
    const double logarithm = std::log(sums[token].sum);
    log_sum_exp[token] = static_cast<float>(sums[token].largest + logarithm);
    // The difference first: with large logits it is small, and the loss keeps its digits.
    losses[token] = static_cast<float>(static_cast<double>(sums[token].largest) - sums[token].label_logit + logarithm);
  }
  return rows;
}

namespace {

using tensor::GradQueue;
using tensor::Param;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The bf16 kernels, if they can serve x.
const Bf16Kernels* kernels_for(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? bf16_kernels() : nullptr;
}

CrossEntropyRows forward_rows(const CrossEntropyInput& input, bool with_backward) {
  if (const Bf16Kernels* kernels = kernels_for(input.x)) return panel_cross_entropy_forward(*kernels, input);
  return wide_cross_entropy_forward(input, /*keep_logits=*/with_backward);
}

// A masked token counts for nothing, even if its loss is not finite.
at::Tensor masked_sum(const at::Tensor& losses, const at::Tensor& loss_mask) {
  return at::where(loss_mask == 0, at::zeros_like(losses), losses * loss_mask).sum();
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, Param* weight, const at::Tensor& labels,
                               const at::Tensor& loss_mask, GradQueue* queue) {
    const CrossEntropyRows rows = forward_rows({x, weight->value, labels}, /*with_backward=*/true);
    capture(context, "weight", weight);
    capture(context, "queue", queue);
    tensor::save_for_backward(context, "linear_cross_entropy",
                              {{"x", x},
                               {"labels", labels},
                               {"loss_mask", loss_mask},
                               {"log_sum_exp", rows.log_sum_exp},
                               {"kept_logits", rows.kept_logits}});
    context->mark_non_differentiable({rows.losses});
    return {masked_sum(rows.losses, loss_mask), rows.losses};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    Param* weight = captured<Param>(context, "weight");
    GradQueue* queue = captured<GradQueue>(context, "queue");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &labels = saved[1], &loss_mask = saved[2], &log_sum_exp = saved[3];
    ESPALIER_CHECK(weight->grad.defined(), "no gradient is kept for the output weight");
    const at::Tensor token_grads = (loss_mask * grads[0]).to(at::kFloat);
    const CrossEntropyInput input{x, weight->value, labels};
    const CrossEntropyBackward backward{log_sum_exp, token_grads, weight->grad, saved[4]};
    const Bf16Kernels* kernels = kernels_for(x);
    const at::Tensor dx = kernels != nullptr ? panel_cross_entropy_backward(*kernels, input, backward)
                                             : wide_cross_entropy_backward(input, backward);
    // The weight's gradient needs the same logits as dx and is already there; the queue only learns that it is
    // complete.
    queue->push(*weight, [] {});
    return {dx, {}, {}, {}, {}};
  }
};

}  // namespace

TokenLosses linear_cross_entropy(const at::Tensor& x, Param& weight, const at::Tensor& labels,
                                 const at::Tensor& loss_mask, GradQueue& queue) {
  ESPALIER_CHECK(x.dim() == 2 && x.size(1) == weight.value.size(1), "x is ", x.sizes(), ", weight ",
                 weight.value.sizes());
  ESPALIER_CHECK(x.scalar_type() == weight.value.scalar_type(), "x is ", x.scalar_type(), ", weight ",
                 weight.value.scalar_type());
  ESPALIER_CHECK(x.is_contiguous() && weight.value.is_contiguous() && labels.is_contiguous());
  ESPALIER_CHECK(labels.dim() == 1 && labels.size(0) == x.size(0) && labels.scalar_type() == at::kLong, labels.sizes());
  ESPALIER_CHECK(loss_mask.dim() == 1 && loss_mask.size(0) == x.size(0) && loss_mask.scalar_type() == at::kFloat,
                 loss_mask.sizes());
  if (!x.requires_grad() || !at::GradMode::is_enabled()) {
    const CrossEntropyRows rows = forward_rows({x, weight.value, labels}, /*with_backward=*/false);
    return {masked_sum(rows.losses, loss_mask), rows.losses};
  }
  const variable_list results = LinearCrossEntropyFunction::apply(x, &weight, labels, loss_mask, &queue);
  return {results[0], results[1]};
}

}  // namespace espalier::kernels
