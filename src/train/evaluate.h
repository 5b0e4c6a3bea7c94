// The loss on held-out sets.
#pragma once

#include <string>
#include <vector>

#include "pipeline/stage.h"
#include "plan/run_config.h"
#include "train/loader.h"
#include "train/step_report.h"

namespace espalier::train {

struct Evaluation {
  int64_t first_sample = 0;
  int64_t num_iterations = 0;     // --eval-iters
  int64_t num_micro_batches = 1;  // of each iteration
};

// Mean losses over num_iterations * num_micro_batches micro-batches, dropout off. Shows progress under `title`.
std::vector<NamedLoss> evaluate(const plan::RunConfig& config, pipeline::Stage& stage, const Loader& loader,
                                const Evaluation& what, const std::string& title);

}  // namespace espalier::train
