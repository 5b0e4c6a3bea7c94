#include "nn/output_layer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "dist/collectives.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/row_product.h"
#include "spec/shard.h"
#include "tensor/observe.h"

namespace espalier::nn {
namespace {

// log of the sum of exponentials, and the label's logit, over all ranks' shards. Every rank adds the same numbers in
// the same order, so that all come to the same bits.
void combine_shards(const dist::Group& ranks, at::Tensor& log_sum_exp, at::Tensor& label_logits) {
  const at::Tensor local = at::stack({log_sum_exp, label_logits}).unsqueeze(0);  // [1, 2, tokens]
  const at::Tensor all = ranks.all_gather(local.contiguous());                   // [tp, 2, tokens]
  log_sum_exp = at::logsumexp(all.select(1, 0), 0);
  label_logits = all.select(1, 1).sum(0);
}

}  // namespace

OutputLayer::OutputLayer(const LayerBuilder& builder, const std::string& name, const std::string& bias, double soft_cap)
    : weight_(builder.params.at(name + ".weight")),
      bias_(bias.empty() ? nullptr : &builder.params.at(bias)),
      queue_(builder.params.grad_queue()),
      ranks_(builder.grid.tensor),
      first_row_(spec::local_ranges(*weight_.spec, builder.params.shard()).at(0).begin),
      sequence_parallel_(builder.sequence_parallel),
      z_loss_(builder.z_loss),
      soft_cap_(soft_cap) {}

OutputLayer::Losses OutputLayer::loss(const at::Tensor& x, const at::Tensor& labels, const at::Tensor& mask) const {
  const at::Tensor whole = sequence_parallel_ ? dist::gather_sequence(x, ranks_) : dist::copy_to_ranks(x, ranks_);
  const int64_t s = labels.size(0), b = labels.size(1);
  kernels::VocabularyShard shard;
  if (ranks_.size() > 1) {
    shard.first_row = first_row_;
    shard.combine = [this](at::Tensor& log_sum_exp, at::Tensor& label_logits) {
      combine_shards(ranks_, log_sum_exp, label_logits);
    };
  }
  const kernels::TokenLosses losses =
      kernels::linear_cross_entropy(whole.view({s * b, -1}), weight_, {labels.reshape({s * b}), mask.reshape({s * b})},
                                    queue_, shard, {.bias = bias_, .z_loss = z_loss_, .soft_cap = soft_cap_});
  return {losses.sum, tensor::observed("loss of each token", losses.per_token.view({s, b})), losses.z_sum,
          has_z_loss() ? losses.z_per_token.view({s, b}) : at::Tensor()};
}

at::Tensor OutputLayer::logits(const at::Tensor& x) const {
  const at::NoGradGuard no_grad;
  at::Tensor logits = plain_logits(x);
  kernels::soft_cap_logits(logits, soft_cap_);
  return logits;
}

at::Tensor OutputLayer::plain_logits(const at::Tensor& x) const {
  if (!weight_.has_grad() && x.is_cpu()) {  // of a model in use: kernels/row_product.h
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight_.value.size(0);
    return kernels::row_product(x.reshape({-1, x.size(-1)}), weight_.value,
                                bias_ == nullptr ? at::Tensor() : bias_->value, at::kFloat)
        .view(shape);
  }
  const at::Tensor logits = at::matmul(x, weight_.value.t()).to(at::kFloat);
  return bias_ == nullptr ? logits : logits + bias_->value;
}

void OutputLayer::visit(tensor::ParamVisitor& visitor) { visitor.param("weight", weight_); }

}  // namespace espalier::nn
