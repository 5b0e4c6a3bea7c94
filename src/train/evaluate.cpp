#include "train/evaluate.h"

#include <ATen/ATen.h>

#include "base/progress.h"
#include "pipeline/runner.h"
#include "train/trainer.h"

namespace espalier::train {

std::vector<NamedLoss> evaluate(const plan::RunConfig& config, pipeline::Stage& stage, const Loader& loader,
                                const Evaluation& what, const std::string& title) {
  const int64_t micro_batch_size = config.training.micro_batch_size;
  const int64_t total = what.num_iterations * what.num_micro_batches;
  Progress progress(title, total * micro_batch_size, Progress::Unit::kItems, "samples");
  std::vector<pipeline::LossTotal> totals;
  for (int64_t index = 0; index < total; ++index) {
    const auto micro_batch = loader.read(what.first_sample + index * micro_batch_size, 1, micro_batch_size);
    pipeline::run_evaluation(micro_batch[0], stage, totals);
    progress.advance(micro_batch_size);
  }
  progress.finish();
  std::vector<NamedLoss> losses;
  for (pipeline::LossTotal& loss : totals) {
    loss.mean_of_means /= static_cast<double>(total);
    losses.push_back({.name = loss.name, .value = mean_loss(loss, config.training.loss_average), .by_source = {}});
  }
  return losses;
}

}  // namespace espalier::train
