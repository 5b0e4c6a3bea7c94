#include "nn/output_layer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "dist/collectives.h"
#include "kernels/device_ops.h"
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

// The row with the best score over all ranks; of equal ones the lower, on every rank alike.
at::Tensor best_of_shards(const dist::Group& ranks, at::Tensor rows, at::Tensor scores) {
  if (ranks.size() == 1) return rows;
  const auto of_ranks = [&ranks](const at::Tensor& own) { return ranks.all_gather(own.unsqueeze(0).contiguous()); };
  const at::Tensor all_rows = of_ranks(rows), all_scores = of_ranks(scores);  // [tp, s, b]
  for (int64_t rank = 0; rank < ranks.size(); ++rank) {
    const at::Tensor better = rank == 0 ? at::ones_like(rows, at::kBool) : all_scores[rank] > scores;
    rows = at::where(better, all_rows[rank], rows);
    scores = at::where(better, all_scores[rank], scores);
  }
  return rows;
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
  return loss_of_whole(whole_sequence(x), labels, mask, z_loss_);
}

OutputLayer::Losses OutputLayer::loss_of_drawn_labels(const at::Tensor& x, const kernels::DrawSite& site,
                                                      const at::Tensor& mask) const {
  const at::Tensor whole = whole_sequence(x);
  return loss_of_whole(whole, drawn_labels(whole, site), mask, /*z_loss=*/0);
}

at::Tensor OutputLayer::whole_sequence(const at::Tensor& x) const {
  return sequence_parallel_ ? dist::gather_sequence(x, ranks_) : dist::copy_to_ranks(x, ranks_);
}

// Some positions at a time, so that logits of all tokens never exist at once.
at::Tensor OutputLayer::drawn_labels(const at::Tensor& whole, const kernels::DrawSite& site) const {
  constexpr int64_t kElements = int64_t{1} << 22;  // 16 MiB
  const int64_t length = whole.size(0), per_position = whole.size(1) * std::max<int64_t>(1, weight_.value.size(0));
  const int64_t step = std::max<int64_t>(1, kElements / per_position);
  std::vector<at::Tensor> rows, scores;
  for (int64_t first = 0; first < length; first += step) {
    const at::Tensor logits_here = logits(whole.detach().narrow(0, first, std::min(step, length - first)));
    kernels::DrawSite site_here = site;
    site_here.first_position += first;
    const kernels::DrawnLabels drawn = kernels::draw_labels(logits_here.contiguous(), first_row_, site_here);
    rows.push_back(drawn.rows), scores.push_back(drawn.scores);
  }
  return best_of_shards(ranks_, at::cat(rows), at::cat(scores));
}

OutputLayer::Losses OutputLayer::loss_of_whole(const at::Tensor& whole, const at::Tensor& labels,
                                               const at::Tensor& mask, double z_loss) const {
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
                                    queue_, shard, {.bias = bias_, .z_loss = z_loss, .soft_cap = soft_cap_});
  return {losses.sum, tensor::observed("loss of each token", losses.per_token.view({s, b})), losses.z_sum,
          z_loss > 0 ? losses.z_per_token.view({s, b}) : at::Tensor()};
}

at::Tensor OutputLayer::logits(const at::Tensor& x) const {
  const at::NoGradGuard no_grad;
  at::Tensor logits = plain_logits(x);
  kernels::soft_cap_logits(logits, soft_cap_);
  return logits;
}

at::Tensor OutputLayer::plain_logits(const at::Tensor& x) const {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight_.value.size(0);
  const at::Tensor rows = x.reshape({-1, x.size(-1)}), bias = bias_ == nullptr ? at::Tensor() : bias_->value;
  const kernels::DeviceOps* const device = kernels::device_ops(x);
  const bool is_in_use = !weight_.has_grad();
  if (is_in_use && device == nullptr) return kernels::row_product(rows, weight_.value, bias, at::kFloat).view(shape);
  const at::Tensor logits =
      is_in_use ? device->matmul_to_fp32(rows, weight_.value) : at::matmul(rows, weight_.value.t()).to(at::kFloat);
  return (bias.defined() ? logits + bias : logits).view(shape);
}

void OutputLayer::visit(tensor::ParamVisitor& visitor) { visitor.param("weight", weight_); }

}  // namespace espalier::nn
