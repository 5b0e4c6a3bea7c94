// How much each rank sends in a step, by axis. Pure functions.
//
// Counted as ring algorithms send it (Thakur et al. 2005): of N bytes over n ranks, an all-gather, a reduce-scatter or
// an all-to-all sends N (n - 1) / n from each rank, an all-reduce twice that. Sums of a few numbers (norms, losses) are
// not counted.
#pragma once

#include <vector>

#include "plan/partition.h"
#include "plan/run_shape.h"

namespace espalier::plan {

// Bytes that a rank of a stage sends in one step.
struct StageMessages {
  double tensor = 0;    // activations, and under sequence parallelism gradients of what is replicated
  double context = 0;   // attention's exchange
  double pipeline = 0;  // activations to the next stage and gradients to the one before
  double data = 0;      // gradients over data and context, and weights under ZeRO
  double tied = 0;      // gradients of parameters that several stages hold
  double total() const { return tensor + context + pipeline + data + tied; }
};

// What a rank passes on to the next part, of one micro-batch, from a part whose last depth that is.
double passed_on_bytes(const RunShape& run, int64_t depth);

// Of each stage of a run with a known vocabulary.
std::vector<StageMessages> plan_messages(const RunShape& run, const Partition& partition);

}  // namespace espalier::plan
