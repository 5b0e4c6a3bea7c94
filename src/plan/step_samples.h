// Which samples of the run each of its steps reads: what was recorded of the steps that were made, and the batch sizes
// of those that are still to come.
//
//   const StepSamples steps(BatchRamp(512), 1000, records);
//   steps.of(7);         // {3072, 512}: samples 3072 to 3583
//   steps.step_of(3100)  // 7
//
// Samples are places in the run's order, from 0. 24 bytes a step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/batch_ramp.h"

namespace espalier::plan {

// What is known of a step that was made: the samples consumed after it, and those that it read (0: not known).
struct StepRecord {
  int64_t step = 0, consumed_samples = 0, num_samples = 0;
};

struct SampleRange {
  int64_t first = 0, count = 0;
  bool operator==(const SampleRange&) const = default;
};

class StepSamples {
 public:
  // `records` are in the order of steps; where they have gaps, and after them, the ramp continues from what they say.
  // The steps are 1 to `num_steps`, or to the last record where that is later.
  StepSamples(const BatchRamp& ramp, int64_t num_steps, const std::vector<StepRecord>& records);

  int64_t num_steps() const { return static_cast<int64_t>(ranges_.size()); }
  SampleRange of(int64_t step) const { return ranges_[static_cast<size_t>(step - 1)]; }
  // The step that reads a sample; nothing beyond the last.
  std::optional<int64_t> step_of(int64_t sample) const;
  int64_t end() const { return ranges_.empty() ? 0 : ranges_.back().first + ranges_.back().count; }

 private:
  std::vector<SampleRange> ranges_;  // of each step; first numbers rise
};

}  // namespace espalier::plan
