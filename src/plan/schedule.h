// Pipeline schedules as tables: for each stage the list of what it does, in order. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace espalier::plan {

struct Action {
  // kBackward computes the input gradient, and the weight gradients too unless the schedule has kWeightGrad actions,
  // which then compute those of the oldest backward that still waits.
  enum class Kind { kForward, kBackward, kWeightGrad };
  Kind kind = Kind::kForward;
  int64_t micro_batch = 0;
  int64_t chunk = 0;  // virtual stage
  bool operator==(const Action&) const = default;
};

// One forward, one backward (Narayanan et al. 2019, PipeDream-Flush): stage `stage` of `num_stages` runs
// min(num_stages - stage - 1, num_micro_batches) forwards ahead, then alternates, then drains. With one stage every
// forward is followed by its backward, so one micro-batch's activations are alive at a time.
std::vector<Action> schedule_1f1b(int64_t num_stages, int64_t stage, int64_t num_micro_batches);

}  // namespace espalier::plan
