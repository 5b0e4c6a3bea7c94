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
#include <optional>

namespace espalier::plan {

enum class DecayStyle { kConstant, kLinear, kCosine };

// Fields are named as their options.
struct ScheduleConfig {
  std::optional<double> lr;
  double min_lr = 0;
  DecayStyle lr_decay_style = DecayStyle::kLinear;
  std::optional<int64_t> lr_decay_iters, lr_decay_samples, lr_decay_tokens, lr_warmup_tokens;
  std::optional<double> lr_warmup_fraction;
  int64_t lr_warmup_iters = 0, lr_warmup_samples = 0;
  bool override_lr_scheduler = false, use_checkpoint_lr_scheduler = false;

  // resolved: schedules count samples. The warm-up is no whole number when it comes from a fraction.
  double warmup_samples = 0;
  int64_t decay_samples = 0;
};

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
