// QK-clip (Kimi K2, 2025): makes the queries and keys of heads shorter whose logits were too large in a step.
//
// Queries that share a key are a group, and are clipped together: where the largest logit S of a group is above the
// threshold t, the rows of its queries (weights and biases) are multiplied by (t / S)^alpha and those of its key by
// (t / S)^(1 - alpha), so that the same inputs would have had logits of t at most.
#pragma once

#include <vector>

#include "dist/grid.h"
#include "spec/optimizer_settings.h"
#include "tensor/logit_maxima.h"

namespace espalier::optim {

// Rows [begin, end) of a parameter's local tensor, and what they are multiplied by.
struct RowFactor {
  const tensor::Param* param = nullptr;
  int64_t begin = 0, end = 0;
  double factor = 1;
};

struct QkClip {
  std::vector<RowFactor> factors;  // of this rank's heads
  double largest = 0;              // logit of all heads of the model
};

// What the step has collected, over all micro-batches and ranks. Called by all of them.
QkClip qk_clip(tensor::LogitMaxima& maxima, const spec::OptimizerSettings& settings, const dist::Grid& grid);

}  // namespace espalier::optim
