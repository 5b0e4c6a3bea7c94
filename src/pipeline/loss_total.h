// What the losses of a step came to, over micro-batches and processes.
#pragma once

#include <string>
#include <vector>

#include "dist/grid.h"
#include "pipeline/stage.h"

namespace espalier::pipeline {

// Sums over micro-batches, in double.
struct LossTotal {
  std::string name;
  bool is_measure = false;  // LossTerm's
  double sum = 0, count = 0;
  double num_means = 0;     // micro-batches with a target
  double sum_of_means = 0;  // of sum / count of each of them, as Megatron-DeepSpeed averages
  // By source of the blend (Batch::sources); one entry per source number up to the largest that occurred.
  struct Source {
    double sum = 0, count = 0;
  };
  std::vector<Source> by_source;
  double text_sum = 0, text_bytes = 0;  // LossTerm's
};

// Adds a micro-batch's losses; `totals` is empty at first.
void add_losses(const Loss& loss, const tensor::Batch& batch, std::vector<LossTotal>& totals);

// Adds one pass's totals to those of passes before it.
void add_totals(const std::vector<LossTotal>& from, std::vector<LossTotal>& to);

// The totals of all replicas, on every rank of the grid. The last stage's ranks bring theirs, the others none.
std::vector<LossTotal> combine_losses(const std::vector<LossTotal>& totals, const dist::Grid& grid);

// The same sums in the order of the step's micro-batches, whatever the number of replicas. `by_micro_batch`: this
// replica's, in order. `take_turns`: replica r of n has micro-batches r, r + n, ...; else those that follow one
// another.
std::vector<LossTotal> combine_losses_in_order(const std::vector<std::vector<LossTotal>>& by_micro_batch,
                                               bool take_turns, const dist::Grid& grid);

}  // namespace espalier::pipeline
