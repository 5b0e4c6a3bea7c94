// What the losses of a step came to, over micro-batches and processes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
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

// The losses of micro-batches, left where they were computed: adding waits for nothing. Each of the two functions that
// read them waits for the device once.
class LossRecord {
 public:
  void add(int64_t micro_batch, const Loss& loss, const tensor::Batch& batch);

  // Over all of them, in the order in which they were added; empty where there are none.
  std::vector<LossTotal> totals() const;
  // Of each of the micro-batches 0 to count - 1; empty for those that were not added.
  std::vector<std::vector<LossTotal>> by_micro_batch(int64_t count) const;

 private:
  struct Entry {
    int64_t micro_batch;
    Loss loss;                     // without graph
    std::vector<int32_t> sources;  // Batch::sources
  };
  template <class Visit>
  void read(const Visit& visit) const;

  std::vector<Entry> entries_;
};

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
