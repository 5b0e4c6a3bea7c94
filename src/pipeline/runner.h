// Runs a schedule table on a stage: forwards and backwards of the micro-batches of one step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "pipeline/stage.h"
#include "plan/schedule.h"

namespace espalier::pipeline {

// What the losses of a step came to; sums over all micro-batches, in double.
struct LossTotal {
  std::string name;
  double sum = 0, count = 0;
  double mean_of_means = 0;  // average over micro-batches of sum / count, as Megatron-DeepSpeed reports it
  // By source of the blend (Batch::sources); one entry per source number that occurred.
  struct Source {
    double sum = 0, count = 0;
  };
  std::vector<Source> by_source;
};

// Factor by which the gradient of a loss term's sum is multiplied for a micro-batch (1 / nominal tokens, times the
// loss scale). The term's count is that of the micro-batch.
using LossFactor = std::function<double(const LossTerm& term)>;

// Runs `schedule` (of one stage). Gradients are added to the parameters; nothing else changes.
std::vector<LossTotal> run_training(const std::vector<plan::Action>& schedule,
                                    const std::vector<tensor::Batch>& micro_batches, Stage& stage,
                                    const LossFactor& factor);

// Forward only, dropout off; adds to `totals` (empty at first).
void run_evaluation(const tensor::Batch& micro_batch, Stage& stage, std::vector<LossTotal>& totals);

}  // namespace espalier::pipeline
