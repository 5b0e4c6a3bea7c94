#include "plan/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace espalier::plan {
namespace {

// The phases of --lr-decay-style after a warm-up that ends at `start`, until `end`: samples, or tokens.
class DecayPhases {
 public:
  DecayPhases(const ScheduleConfig& config, double start, double end) : config_(config), start_(start), end_(end) {}

  std::vector<LrPhase> list() {
    const double peak = *config_.lr, floor = config_.min_lr;
    switch (config_.lr_decay_style) {
      case DecayStyle::kConstant:
        if (config_.lr_constant_plus_cooldown) return hold_and_fall(cooldown(), LrShape::kMinusSqrt);
        add(LrShape::kConstant, end_, peak, peak);
        break;
      case DecayStyle::kLinear: add(LrShape::kLinear, end_, peak, floor); break;
      case DecayStyle::kCosine: add(LrShape::kCosine, end_, peak, floor); break;
      case DecayStyle::kInverseSquareRoot: add(LrShape::kInverseSqrt, end_, peak, floor); break;
      case DecayStyle::kInfiniteCosine: infinite(LrShape::kCosine); break;
      case DecayStyle::kInfiniteInvSquareRoot: infinite(LrShape::kScaledInverseSqrt); break;
      case DecayStyle::kWsd: return hold_and_fall(static_cast<double>(config_.wsd_samples), config_.lr_wsd_decay_style);
    }
    return phases_;
  }

 private:
  void add(LrShape shape, double end, double from, double to, const char* name = nullptr) {
    phases_.push_back({.shape = shape,
                       .end = end,
                       .from = from,
                       .to = to,
                       .timescale = config_.timescale,
                       .name = name != nullptr ? name : to_string(shape)});
  }

  // Argonne's fork cuts the length to a whole number.
  double cooldown() const { return std::floor(config_.lr_constant_plus_cooldown_frac * end_); }

  std::vector<LrPhase> hold_and_fall(double length, LrShape shape) {
    add(LrShape::kConstant, end_ - length, *config_.lr, *config_.lr);
    add(shape, end_, *config_.lr, config_.min_lr);
    return phases_;
  }

  void infinite(LrShape shape) {
    const bool by_tokens = config_.lr_decay_tokens.has_value();
    const auto length = [&](const std::optional<int64_t>& tokens, double share) {
      return by_tokens && tokens ? static_cast<double>(*tokens) : share * end_;
    };
    const double fallen = start_ + length(config_.lr_cooldown_tokens, config_.lr_cooldown_fraction);
    const double held = fallen + length(config_.lr_constant_tokens, config_.lr_constant_fraction);
    add(shape, fallen, *config_.lr, config_.constant_lr);
    add(LrShape::kConstant, held, config_.constant_lr, config_.constant_lr);
    add(LrShape::kGeometric, end_, config_.constant_lr, config_.min_lr);
  }

  const ScheduleConfig& config_;
  double start_, end_;
  std::vector<LrPhase> phases_;
};

}  // namespace

LrSchedule::LrSchedule(const ScheduleConfig& config) : config_(config) {
  ESPALIER_CHECK(config.lr && config.min_lr >= 0 && *config.lr >= config.min_lr, config.min_lr);
  ESPALIER_CHECK(config.decay_samples > 0 && config.warmup_samples < static_cast<double>(config.decay_samples),
                 config.warmup_samples, " ", config.decay_samples);
  update();
}

void LrSchedule::step(int64_t num_samples, int64_t num_tokens) {
  state_.num_samples += num_samples;
  state_.num_tokens = num_tokens;
  update();
}

void LrSchedule::restore(const LrState& state) {
  state_ = state;
  update();
}

void LrSchedule::update() { place_ = rate(); }

LrPlace LrSchedule::place_in(const std::vector<LrPhase>& phases, double start, double position) {
  const LrPlace place = rate_at(phases, start, position);
  phase_ = place.phase < phases.size() ? phases[place.phase].name : "floor";
  if (!config_.phases.empty() && place.phase < phases.size()) phase_ = concat(place.phase + 1, " ", phase_);
  return place;
}

LrPlace LrSchedule::rate() {
  const auto samples = static_cast<double>(state_.num_samples), tokens = static_cast<double>(state_.num_tokens);
  if (!config_.phases.empty()) return place_in(config_.phases, 0, samples);
  LrPhase warmup{.shape = LrShape::kLinear, .from = config_.lr_warmup_init, .to = *config_.lr, .name = "warmup"};
  if (config_.lr_warmup_tokens) {
    state_.warmup_tokens = *config_.lr_warmup_tokens;
    warmup.end = static_cast<double>(state_.warmup_tokens);
    if (warmup.end > 0 && tokens <= warmup.end) return place_in({warmup}, 0, tokens);
  } else if (config_.warmup_samples > 0 && samples <= config_.warmup_samples) {
    // The end of the warm-up in tokens is noted only when it falls on the end of a step; else it stays 0, as upstream.
    if (samples == config_.warmup_samples && config_.lr_decay_tokens) state_.warmup_tokens = state_.num_tokens;
    warmup.end = config_.warmup_samples;
    return place_in({warmup}, 0, samples);
  }
  const bool by_tokens = config_.lr_decay_tokens.has_value();
  const double start = by_tokens ? static_cast<double>(state_.warmup_tokens) : config_.warmup_samples;
  const auto end = static_cast<double>(by_tokens ? *config_.lr_decay_tokens : config_.decay_samples);
  return place_in(DecayPhases(config_, start, end).list(), start, by_tokens ? tokens : samples);
}

// As get_wd() of Megatron-LM's OptimizerParamScheduler.
std::optional<double> LrSchedule::weight_decay() const {
  if (config_.weight_decay_incr_style == WeightDecayStyle::kConstant) return std::nullopt;
  const double start = *config_.start_weight_decay, end = *config_.end_weight_decay;
  if (state_.num_samples > config_.weight_decay_samples) return end;
  const double share = static_cast<double>(state_.num_samples) / static_cast<double>(config_.weight_decay_samples);
  const double risen = config_.weight_decay_incr_style == WeightDecayStyle::kLinear
                           ? share
                           : 0.5 * (std::cos(std::numbers::pi * (1 - share)) + 1.0);
  return start + risen * (end - start);
}

bool same_until(const ScheduleConfig& one, const ScheduleConfig& other, const LrState& state) {
  for (const ScheduleConfig* config : {&one, &other})  // what another program saved need not be whole
    if (!config->lr || config->min_lr > *config->lr || config->decay_samples <= 0 ||
        config->warmup_samples >= static_cast<double>(config->decay_samples))
      return false;
  constexpr int64_t kPlaces = 1024;
  LrSchedule a(one), b(other);
  for (int64_t place = 0; place <= kPlaces; ++place) {
    const auto part = [&](int64_t whole) {
      return static_cast<int64_t>(static_cast<double>(whole) / kPlaces * static_cast<double>(place));
    };
    LrState then = state;
    if (place < kPlaces) then.num_samples = part(state.num_samples), then.num_tokens = part(state.num_tokens);
    a.restore(then), b.restore(then);
    if (a.lr() != b.lr() || a.weight_decay() != b.weight_decay()) return false;
  }
  return true;
}

}  // namespace espalier::plan
