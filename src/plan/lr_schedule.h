// The learning rate, as Megatron-DeepSpeed's AnnealingLR computes it, to the bit (learning_rates.py). Plain doubles.
//
// Positions count samples, whatever unit the options use (ScheduleConfig has them converted). The rate of a step
// is that of the position before it: the first step of a run with warm-up has rate 0.
//   position <= warmup:   max * position / warmup; with lr_warmup_tokens both count tokens
//   constant:             max
//   linear, cosine:       min + c (max - min), c = 1 - r or (cos(pi r) + 1) / 2, r = (position - warmup) / (decay -
//   warmup);
//                         min beyond the end. With lr_decay_tokens, r counts tokens from the end of warm-up on.
#pragma once

#include <cstdint>

#include "plan/run_config.h"

namespace espalier::plan {

// Saved with every checkpoint.
struct LrState {
  int64_t num_samples = 0;
  int64_t num_tokens = 0;
  int64_t warmup_tokens = 0;  // lr_warmup_tokens, or those consumed when the position was exactly at the end of warm-up
  bool operator==(const LrState&) const = default;
};

class LrSchedule {
 public:
  // Resolved; lr must be set.
  explicit LrSchedule(const ScheduleConfig& config);

  double lr() const { return lr_; }
  // Moves on by the samples of a step; `num_tokens` is what the run had consumed before that step.
  void step(int64_t num_samples, int64_t num_tokens);
  const LrState& state() const { return state_; }
  void restore(const LrState& state);

 private:
  double rate();

  ScheduleConfig config_;
  LrState state_;
  double lr_ = 0;
};

}  // namespace espalier::plan
