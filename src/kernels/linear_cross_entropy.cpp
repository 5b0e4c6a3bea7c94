#include "kernels/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "base/work_profile.h"
#include "kernels/captured.h"
#include "kernels/cross_entropy_blocks.h"
#include "kernels/device_ops.h"
#include "kernels/internal/row_dispatch.h"
#include "kernels/matmul_blocked.h"
#include "tensor/saved.h"

namespace espalier::kernels {

namespace {

using tensor::GradQueue;
using tensor::GradWrite;
using tensor::Param;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The bf16 kernels, if they can serve x.
const Bf16Kernels* panel_kernels_for(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? bf16_kernels() : nullptr;
}

CrossEntropyRows forward_rows(const CrossEntropyInput& input, bool with_backward) {
  if (const Bf16Kernels* kernels = panel_kernels_for(input.x))
    return panel_cross_entropy_forward(*kernels, input, with_backward ? kKeptLogitBytes : 0);
  return wide_cross_entropy_forward(input, /*keep_logits=*/with_backward);
}

struct FinishedRows {
  at::Tensor losses, log_sum_exp;  // [tokens] fp32
};

// Of the whole vocabulary from one shard's sums.
FinishedRows combined_rows(const std::vector<SoftmaxSums>& sums, const VocabularyShard& shard) {
  const int64_t tokens = static_cast<int64_t>(sums.size());
  at::Tensor log_sum_exp = at::empty({tokens}, at::TensorOptions().dtype(at::kDouble));
  at::Tensor label_logits = at::empty_like(log_sum_exp);
  double* logarithms = log_sum_exp.mutable_data_ptr<double>();
  double* labels = label_logits.mutable_data_ptr<double>();
  for (int64_t token = 0; token < tokens; ++token) {
    logarithms[token] = sums[token].largest + std::log(sums[token].sum);
    labels[token] = sums[token].label_logit;
  }
  shard.combine(log_sum_exp, label_logits);
  ESPALIER_CHECK(log_sum_exp.dim() == 1 && log_sum_exp.size(0) == tokens && log_sum_exp.sizes() == label_logits.sizes(),
                 "combined ", tokens, " tokens to ", log_sum_exp.sizes(), " and ", label_logits.sizes());
  return {(log_sum_exp - label_logits).to(at::kFloat), log_sum_exp.to(at::kFloat)};
}

FinishedRows finish_rows(const std::vector<SoftmaxSums>& sums, const VocabularyShard& shard) {
  if (shard.combine) return combined_rows(sums, shard);
  const int64_t tokens = static_cast<int64_t>(sums.size());
  const auto fp32 = at::TensorOptions().dtype(at::kFloat);
  const FinishedRows rows{at::empty({tokens}, fp32), at::empty({tokens}, fp32)};
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

// The same from a device's sums.
FinishedRows finish_rows(const DeviceOps::SoftmaxRows& sums, const VocabularyShard& shard) {
  const at::Tensor largest = sums.largest.to(at::kDouble), logarithm = sums.sum.log();
  at::Tensor log_sum_exp = largest + logarithm, label_logits = sums.label_logit.to(at::kDouble);
  if (!shard.combine) return {(largest - label_logits + logarithm).to(at::kFloat), log_sum_exp.to(at::kFloat)};
  shard.combine(log_sum_exp, label_logits);
  return {(log_sum_exp - label_logits).to(at::kFloat), log_sum_exp.to(at::kFloat)};
}

struct ForwardResult {
  FinishedRows rows;
  at::Tensor kept_logits;
};

// What a backward pass will do with the logits of this one.
enum class Backward { kNone, kOnce, kTwice };

ForwardResult forward(const CrossEntropyInput& input, const VocabularyShard& shard, Backward backward) {
  if (const DeviceOps* device = device_ops(input.x)) {
    const DeviceOps::SoftmaxRows rows =
        device->cross_entropy_forward(input, /*keep_logits=*/backward == Backward::kOnce);
    return {finish_rows(rows, shard),
            rows.kept_logits.defined() ? rows.kept_logits : at::empty({0}, input.x.options())};
  }
  const CrossEntropyRows rows = forward_rows(input, /*with_backward=*/backward != Backward::kNone);
  return {finish_rows(rows.sums, shard), rows.kept_logits};
}

at::Tensor backward_rows(const CrossEntropyInput& input, CrossEntropyBackward backward) {
  const bool overwrites = backward.weight_write == GradWrite::kOverwrite;
  if (overwrites && (device_ops(input.x) != nullptr || input.x.size(0) == 0)) {
    backward.weight_grad.zero_();
    backward.weight_write = GradWrite::kAdd;
  }
  if (const DeviceOps* device = device_ops(input.x)) return device->cross_entropy_backward(input, backward);
  const Bf16Kernels* kernels = panel_kernels_for(input.x);
  return kernels != nullptr ? panel_cross_entropy_backward(*kernels, input, backward)
                            : wide_cross_entropy_backward(input, backward);
}

at::Tensor value_of(const Param* bias) { return bias == nullptr ? at::Tensor() : bias->value; }

// The bias's gradient by itself: gradients of weight and bias need not exist at the same time (ZeRO 2).
at::Tensor bias_sums(const Param* bias) {
  return bias == nullptr ? at::Tensor() : at::zeros({bias->value.size(0)}, bias->value.options().dtype(at::kFloat));
}

at::Tensor z_losses(double coefficient, const at::Tensor& log_sum_exp) { return log_sum_exp.square() * coefficient; }

// A masked token counts for nothing, even if its loss is not finite.
at::Tensor masked_sum(const at::Tensor& losses, const at::Tensor& loss_mask) {
  return at::where(loss_mask == 0, at::zeros_like(losses), losses * loss_mask).sum();
}

at::Tensor log_sum_grads(const at::Tensor& factor, const at::Tensor& log_sum_exp, const at::Tensor& loss_mask) {
  // As in masked_sum(): a masked token's may be infinite.
  return at::where(loss_mask == 0, at::zeros_like(log_sum_exp), log_sum_exp * loss_mask * factor);
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  // `targets`: labels are rows of the shard.
  static variable_list forward(AutogradContext* context, const at::Tensor& x, Param* weight, Param* bias,
                               const TokenTargets& targets, GradQueue* queue, const VocabularyShard& shard,
                               double z_loss, double soft_cap) {
    const WorkSpan span(Work::kLoss, "forward, with the output product");
    const bool twice = queue->mode() == GradQueue::Mode::kDeferred;
    const auto& [rows, kept_logits] = kernels::forward({x, weight->value, targets.labels, value_of(bias), soft_cap},
                                                       shard, twice ? Backward::kTwice : Backward::kOnce);
    capture(context, "weight", weight);
    capture(context, "bias", bias);
    capture(context, "queue", queue);
    context->saved_data["z_loss"] = z_loss;
    context->saved_data["soft_cap"] = soft_cap;
    tensor::save_for_backward(context, "linear_cross_entropy",
                              {{"x", x},
                               {"labels", targets.labels},
                               {"loss_mask", targets.loss_mask},
                               {"log_sum_exp", rows.log_sum_exp},
                               {"kept_logits", kept_logits}});
    const at::Tensor sum = masked_sum(rows.losses, targets.loss_mask);
    if (z_loss == 0) {
      context->mark_non_differentiable({rows.losses});
      return {sum, rows.losses};
    }
    const at::Tensor squares = z_losses(z_loss, rows.log_sum_exp);
    context->mark_non_differentiable({rows.losses, squares});
    return {sum, rows.losses, masked_sum(squares, targets.loss_mask), squares};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const WorkSpan span(Work::kLoss, "backward, with the output products");
    Param* weight = captured<Param>(context, "weight");
    Param* bias = captured<Param>(context, "bias");
    GradQueue* queue = captured<GradQueue>(context, "queue");
    ESPALIER_CHECK(weight->has_grad(), "no gradient is kept for the output weight");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &labels = saved[1], &loss_mask = saved[2], &log_sum_exp = saved[3];
    const at::Tensor &kept_logits = saved[4], token_grads = (loss_mask * grads[0]).to(at::kFloat);
    const double z_loss = context->saved_data["z_loss"].toDouble();
    // Of the z-loss, coefficient * log_sum_exp^2.
    const at::Tensor log_grads =
        z_loss == 0 ? at::Tensor() : log_sum_grads(2 * z_loss * grads[2], log_sum_exp, loss_mask);
    const at::Tensor bias_value = value_of(bias);
    const double soft_cap = context->saved_data["soft_cap"].toDouble();
    const CrossEntropyInput input{x, weight->value, labels, bias_value, soft_cap};
    const at::Tensor sums = bias_sums(bias);
    at::Tensor dx;
    if (queue->mode() == GradQueue::Mode::kDeferred) {
      dx = backward_rows(input, {log_sum_exp, token_grads, log_grads, kept_logits});
      queue->push_write(*weight, [=](GradWrite write) {
        const WorkSpan span(Work::kLoss, "weight gradient");
        backward_rows({x, weight->value, labels, value_of(bias), soft_cap},
                      {log_sum_exp, token_grads, log_grads, kept_logits, false, weight->grad, sums, write});
      });
    } else {
      // Both from the same logits; the queue only learns that the weight's gradient is complete.
      const GradWrite write = queue->prepare_write(*weight);
      dx = backward_rows(input, {log_sum_exp, token_grads, log_grads, kept_logits, true, weight->grad, sums, write});
      queue->push(*weight, [] {});
    }
    if (bias != nullptr) queue->push(*bias, [bias, sums] { bias->grad.add_(sums); });
    return {dx, {}, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

LogitSources::LogitSources(const CrossEntropyBackward& backward, double soft_cap)
    : log_sum_exp_(backward.log_sum_exp.const_data_ptr<float>()),
      losses_(backward.token_grads.const_data_ptr<float>()),
      log_sums_(backward.log_grads.defined() ? backward.log_grads.const_data_ptr<float>() : nullptr),
      inverse_cap_(soft_cap == 0 ? 0 : 1 / static_cast<float>(soft_cap)) {}

void cap_logits(float* logits, int64_t count, double soft_cap) {
  if (soft_cap != 0) row_kernels().soft_cap(logits, count, static_cast<float>(soft_cap));
}

void soft_cap_logits(at::Tensor& logits, double soft_cap) {
  ESPALIER_CHECK(logits.scalar_type() == at::kFloat && logits.is_contiguous(), logits.scalar_type());
  if (soft_cap == 0) return;
  if (!logits.is_cpu()) {
    logits.div_(soft_cap).tanh_().mul_(soft_cap);
    return;
  }
  const int64_t columns = logits.size(-1), rows = columns == 0 ? 0 : logits.numel() / columns;
  float* values = logits.mutable_data_ptr<float>();
  at::parallel_for(0, rows, 1, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) cap_logits(values + row * columns, columns, soft_cap);
  });
}

TokenLosses linear_cross_entropy(const at::Tensor& x, Param& weight, const TokenTargets& targets, GradQueue& queue,
                                 const VocabularyShard& shard, const OutputTerms& terms) {
  const auto& [labels, loss_mask] = targets;
  Param* const bias = terms.bias;
  ESPALIER_CHECK(x.dim() == 2 && x.size(1) == weight.value.size(1), "x is ", x.sizes(), ", weight ",
                 weight.value.sizes());
  ESPALIER_CHECK(x.scalar_type() == weight.value.scalar_type(), "x is ", x.scalar_type(), ", weight ",
                 weight.value.scalar_type());
  ESPALIER_CHECK(x.is_contiguous() && weight.value.is_contiguous() && labels.is_contiguous());
  ESPALIER_CHECK(labels.dim() == 1 && labels.size(0) == x.size(0) && labels.scalar_type() == at::kLong, labels.sizes());
  ESPALIER_CHECK(loss_mask.dim() == 1 && loss_mask.size(0) == x.size(0) && loss_mask.scalar_type() == at::kFloat,
                 loss_mask.sizes());
  ESPALIER_CHECK(bias == nullptr || (bias->value.dim() == 1 && bias->value.size(0) == weight.value.size(0)),
                 "a bias of ", value_of(bias).numel(), " for ", weight.value.size(0), " rows");
  ESPALIER_CHECK(terms.soft_cap >= 0, "a cap of ", terms.soft_cap);
  ESPALIER_CHECK(shard.combine || shard.first_row == 0, "rows from ", shard.first_row, " on are not the whole");
  const TokenTargets local{shard.first_row == 0 ? labels : labels - shard.first_row, loss_mask};
  if (!builds_graph(x)) {
    const WorkSpan span(Work::kLoss, "forward, with the output product");
    const FinishedRows rows =
        forward({x, weight.value, local.labels, value_of(bias), terms.soft_cap}, shard, Backward::kNone).rows;
    const at::Tensor sum = masked_sum(rows.losses, loss_mask);
    if (terms.z_loss == 0) return {sum, rows.losses, {}, {}};
    const at::Tensor squares = z_losses(terms.z_loss, rows.log_sum_exp);
    return {sum, rows.losses, masked_sum(squares, loss_mask), squares};
  }
  const variable_list results =
      LinearCrossEntropyFunction::apply(x, &weight, bias, local, &queue, shard, terms.z_loss, terms.soft_cap);
  if (terms.z_loss == 0) return {results[0], results[1], {}, {}};
  return {results[0], results[1], results[2], results[3]};
}

}  // namespace espalier::kernels
