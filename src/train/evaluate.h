// The loss on held-out sets.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "config/run_config.h"
#include "dist/grid.h"
#include "pipeline/runner.h"
#include "report/step_report.h"
#include "train/loader.h"

namespace espalier::train {

struct Evaluation {
  int64_t first_sample = 0;
  int64_t num_iterations = 0;     // --eval-iters
  int64_t num_micro_batches = 1;  // of each replica in each iteration
};

// Bytes of text by id, within a text and at its beginning (text::TextBytes), int64 in host memory; undefined: no bits
// per byte.
struct LabelBytes {
  at::Tensor within, first;
};

struct EvaluationParts {
  const dist::Grid& grid;
  pipeline::Runner& runner;
  const Loader& loader;
  LabelBytes label_bytes;
};

// Called by all ranks. Mean losses over num_iterations * num_micro_batches micro-batches of every replica, dropout off.
// Shows progress under `title`.
std::vector<report::NamedLoss> evaluate(const config::RunConfig& config, const EvaluationParts& parts,
                                        const Evaluation& what, const std::string& title);

}  // namespace espalier::train
