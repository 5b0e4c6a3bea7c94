#include "plan/lr_schedule.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace espalier::plan {

LrSchedule::LrSchedule(const ScheduleConfig& config) : config_(config) {
  ESPALIER_CHECK(config.lr && config.min_lr >= 0 && *config.lr >= config.min_lr, config.min_lr);
  ESPALIER_CHECK(config.decay_samples > 0 && config.warmup_samples < static_cast<double>(config.decay_samples),
                 config.warmup_samples, " ", config.decay_samples);
  lr_ = rate();
}

void LrSchedule::step(int64_t num_samples, int64_t num_tokens) {
  state_.num_samples += num_samples;
  state_.num_tokens = num_tokens;
  lr_ = rate();
}

void LrSchedule::restore(const LrState& state) {
  state_ = state;
  lr_ = rate();
}

// The order of operations is upstream's: the results are equal to the last bit.
double LrSchedule::rate() {
  const double max_lr = *config_.lr;
  const auto samples = static_cast<double>(state_.num_samples);
  if (config_.lr_warmup_tokens) {
    const int64_t warmup_tokens = state_.warmup_tokens = *config_.lr_warmup_tokens;
    if (warmup_tokens > 0 && state_.num_tokens <= warmup_tokens)
      return max_lr * static_cast<double>(state_.num_tokens) / static_cast<double>(warmup_tokens);
  } else if (config_.warmup_samples > 0 && samples <= config_.warmup_samples) {
    // The end of the warm-up in tokens is noted only when it falls on the end of a step; else it stays 0, as upstream.
    if (samples == config_.warmup_samples && config_.lr_decay_tokens) state_.warmup_tokens = state_.num_tokens;
    return max_lr * samples / config_.warmup_samples;
  }
  if (config_.lr_decay_style == DecayStyle::kConstant) return max_lr;
  double decayed = 1;
  if (!config_.lr_decay_tokens) {
    const auto end = static_cast<double>(config_.decay_samples);
    decayed = (samples - config_.warmup_samples) / (end - config_.warmup_samples);
  } else if (state_.num_tokens < *config_.lr_decay_tokens) {
    decayed = static_cast<double>(state_.num_tokens - state_.warmup_tokens) /
              static_cast<double>(*config_.lr_decay_tokens - state_.warmup_tokens);
  }
  if (decayed >= 1) return config_.min_lr;
  const double share = config_.lr_decay_style == DecayStyle::kLinear
                           ? 1.0 - decayed
                           : 0.5 * (std::cos(std::numbers::pi * decayed) + 1.0);
  return config_.min_lr + share * (max_lr - config_.min_lr);
}

}  // namespace espalier::plan
