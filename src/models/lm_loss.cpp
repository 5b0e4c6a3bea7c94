#include "models/lm_loss.h"

#include <ATen/ATen.h>

#include "dist/collectives.h"
#include "models/data.h"
#include "models/transformer_stack.h"

namespace espalier::models {
namespace {

kernels::DrawSite draw_site(const tensor::Batch& batch, const at::Tensor& seed, int64_t first_position) {
  return {.key = tensor::philox_key(static_cast<uint64_t>(seed.item<int64_t>()), "labels"),
          .sample_numbers = &batch.sample_numbers,
          .first_position = first_position};
}

}  // namespace

pipeline::Loss lm_loss(const nn::OutputLayer& output_layer, const dist::Grid& grid, const at::Tensor& x,
                       const tensor::Batch& batch) {
  const SequenceRows rows = context_rows(grid, batch.ids.size(1));
  const auto of_rank = [&rows](const at::Tensor& whole) {
    return whole.narrow(1, rows.first, rows.count).t().contiguous();  // [b, s] -> [s/cp, b]
  };
  const at::Tensor mask = of_rank(batch.loss_mask);
  const auto seed = batch.extra.find(kDrawnLabels);
  const bool draws = seed != batch.extra.end();
  const nn::OutputLayer::Losses losses =
      draws ? output_layer.loss_of_drawn_labels(x, draw_site(batch, seed->second, rows.first), mask)
            : output_layer.loss(x, of_rank(batch.labels), mask);
  pipeline::LossTerm term;
  term.name = "lm loss";
  term.sum = dist::sum_over_ranks(losses.sum, grid.context);
  term.row_sums = (losses.per_token * mask).sum(0);
  grid.context.all_reduce(term.row_sums);
  const auto targets = batch.extra.find(kRowTargets);
  term.row_counts = targets == batch.extra.end() ? batch.loss_mask.sum(1) : targets->second;
  term.count = term.row_counts.sum();
  if (const auto bytes = batch.extra.find(kLabelBytes); bytes != batch.extra.end()) {
    const at::Tensor is_text = (batch.loss_mask > 0).logical_and(bytes->second >= 0);  // [b, s]
    term.text_sum = at::where(of_rank(is_text), losses.per_token, 0).sum(at::kDouble);
    grid.context.all_reduce(term.text_sum);
    term.text_bytes = (is_text * bytes->second).sum(at::kDouble);
  }
  if (!output_layer.has_z_loss() || draws) return {std::move(term)};
  pipeline::LossTerm z_term{.name = "z loss",
                            .sum = dist::sum_over_ranks(losses.z_sum, grid.context),
                            .count = term.count,
                            .targets_of = term.name,
                            .row_sums = (losses.z_per_token * mask).sum(0),
                            .row_counts = term.row_counts,
                            .text_sum = {},
                            .text_bytes = {}};
  grid.context.all_reduce(z_term.row_sums);
  return {std::move(term), std::move(z_term)};
}

}  // namespace espalier::models
