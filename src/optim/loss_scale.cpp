#include "optim/loss_scale.h"

#include <algorithm>

namespace espalier::optim {

LossScale::LossScale(const LossScaleConfig& config)
    : config_(config), state_{.scale = config.initial, .growth_tracker = 0, .hysteresis_tracker = config.hysteresis} {}

void LossScale::update(bool found_overflow) {
  if (!config_.dynamic) return;
  if (found_overflow) {
    state_.growth_tracker = 0;
    if (--state_.hysteresis_tracker <= 0) state_.scale = std::max(state_.scale * config_.backoff, config_.minimum);
    return;
  }
  if (++state_.growth_tracker == config_.window) {
    state_.growth_tracker = 0;
    state_.hysteresis_tracker = config_.hysteresis;
    state_.scale *= config_.growth;
  }
}

}  // namespace espalier::optim
