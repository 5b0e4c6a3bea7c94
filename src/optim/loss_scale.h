// Dynamic loss scale for fp16, as Megatron's DynamicGradScaler: halves after `hysteresis` overflows in a row of
// trouble, doubles after `window` clean steps.
//
// The hysteresis counter is not refilled by a backoff, only by a full clean window: further overflows halve at once.
#pragma once

#include <cstdint>

namespace espalier::optim {

struct LossScaleConfig {
  double initial = 4294967296.0;  // 2^32
  double minimum = 1.0;
  double growth = 2.0, backoff = 0.5;
  int64_t window = 1000;
  int64_t hysteresis = 2;
  bool dynamic = true;  // false: `initial` for ever (--loss-scale)
};

struct LossScaleState {
  double scale = 1;
  int64_t growth_tracker = 0, hysteresis_tracker = 0;
  bool operator==(const LossScaleState&) const = default;
};

class LossScale {
 public:
  explicit LossScale(const LossScaleConfig& config);
  double scale() const { return state_.scale; }
  void update(bool found_overflow);
  const LossScaleState& state() const { return state_; }
  void restore(const LossScaleState& state) { state_ = state; }

 private:
  LossScaleConfig config_;
  LossScaleState state_;
};

}  // namespace espalier::optim
