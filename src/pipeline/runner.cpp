#include "pipeline/runner.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <unordered_map>

#include "base/error.h"

namespace espalier::pipeline {
namespace {

void add_to_total(const LossTerm& term, const tensor::Batch& batch, LossTotal& total) {
  const double sum = term.sum.item<double>(), count = term.count.item<double>();
  total.name = term.name;
  total.sum += sum;
  total.count += count;
  if (count > 0) total.mean_of_means += sum / count;
  const at::Tensor row_sums = term.row_sums.to(at::kDouble).cpu(), row_counts = term.row_counts.to(at::kDouble).cpu();
  for (int64_t row = 0; row < row_sums.size(0); ++row) {
    const size_t source = batch.sources.empty() ? 0 : static_cast<size_t>(batch.sources[static_cast<size_t>(row)]);
    if (total.by_source.size() <= source) total.by_source.resize(source + 1);
    total.by_source[source].sum += row_sums[row].item<double>();
    total.by_source[source].count += row_counts[row].item<double>();
  }
}

void add_to_totals(const Loss& loss, const tensor::Batch& batch, std::vector<LossTotal>& totals) {
  if (totals.empty()) totals.resize(loss.size());
  ESPALIER_CHECK(totals.size() == loss.size(), "the number of loss terms changed between micro-batches");
  for (size_t term = 0; term < loss.size(); ++term) add_to_total(loss[term], batch, totals[term]);
}

void run_backward(const Loss& loss, const LossFactor& factor) {
  torch::autograd::variable_list roots, gradients;
  for (const LossTerm& term : loss) {
    roots.push_back(term.sum);
    gradients.push_back(at::full({}, term.weight * factor(term), term.sum.options()));
  }
  torch::autograd::backward(roots, gradients);
}

}  // namespace

std::vector<LossTotal> run_training(const std::vector<plan::Action>& schedule,
                                    const std::vector<tensor::Batch>& micro_batches, Stage& stage,
                                    const LossFactor& factor) {
  std::vector<LossTotal> totals;
  std::unordered_map<int64_t, Loss> waiting;  // losses whose backward has not run yet: they hold the activations
  for (const plan::Action& action : schedule) {
    const tensor::Batch& batch = micro_batches[static_cast<size_t>(action.micro_batch)];
    if (action.kind == plan::Action::Kind::kForward) {
      StageOutput output = stage.forward({.batch = &batch, .tensors = {}, .training = true});
      add_to_totals(output.loss, batch, totals);
      waiting.emplace(action.micro_batch, std::move(output.loss));
    } else {
      const auto loss = waiting.extract(action.micro_batch);
      ESPALIER_CHECK(!loss.empty(), "backward of micro-batch ", action.micro_batch, " before its forward");
      run_backward(loss.mapped(), factor);
    }
  }
  for (LossTotal& total : totals) total.mean_of_means /= static_cast<double>(micro_batches.size());
  return totals;
}

void run_evaluation(const tensor::Batch& micro_batch, Stage& stage, std::vector<LossTotal>& totals) {
  const at::NoGradGuard no_grad;
  add_to_totals(stage.forward({.batch = &micro_batch, .tensors = {}, .training = false}).loss, micro_batch, totals);
}

}  // namespace espalier::pipeline
