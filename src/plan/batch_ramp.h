// The global batch size of every step: constant, or growing with --rampup-batch-size START INCREMENT SAMPLES.
//
// Megatron-DeepSpeed's arithmetic to the bit: (batch - START) / INCREMENT steps up, each lasting
// SAMPLES / steps samples in doubles. At exactly SAMPLES consumed the full size is therefore not certain: with
// 32 32 2000000 to 512 it is still 480 there, and 512 from 2,000,001 on.
#pragma once

#include <cstdint>

namespace espalier::plan {

class BatchRamp {
 public:
  // Constant.
  explicit BatchRamp(int64_t global_batch_size);
  // Requires 0 < start < global_batch_size, increment > 0 that divides their difference, samples >= 0 (resolve() in
  // run_config.h tells users).
  BatchRamp(int64_t start, int64_t increment, int64_t ramp_samples, int64_t global_batch_size);

  // The batch of a step before which that many samples were consumed.
  int64_t global_batch_size(int64_t consumed_samples) const;
  // Number of steps that train_samples samples last.
  int64_t num_steps(int64_t train_samples) const;
  // Smallest and largest size are multiples of this; the sizes between as well.
  bool all_sizes_divide_by(int64_t divisor) const;
  bool is_constant() const { return num_increments_ == 0; }

 private:
  int64_t final_, start_, increment_ = 0, ramp_samples_ = 0, num_increments_ = 0;
};

}  // namespace espalier::plan
