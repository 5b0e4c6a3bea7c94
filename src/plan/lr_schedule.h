// The learning rate and the weight decay of each step. Plain doubles.
//
// Positions count samples, whatever unit the options use (ScheduleConfig has them converted). The rate of a step
// is that of the position before it: the first step of a run with warm-up has the rate where warm-up begins.
//
// The rate is a list of phases (lr_phases.h). --lr-phases names them; else the options of Megatron-DeepSpeed, of
// Argonne's fork and of Megatron-LM spell them, equal to the originals' classes (megatron/learning_rates.py,
// optimizer_param_scheduler.py of both; what Megatron-DeepSpeed has is equal to the last bit), for
// w = end of warm-up, D = end of decay:
//   warm-up                    linear from lr_warmup_init to lr until w
//   constant                   lr; with lr_constant_plus_cooldown minus-sqrt to min_lr over the last
//                              floor(fraction of D)
//   linear, cosine             from lr to min_lr until D
//   inverse-square-root        inverse-sqrt from lr until D, then min_lr
//   infinite-cosine,           cosine or scaled-inverse-sqrt from lr to constant_lr over a share of D, constant_lr over
//   infinite-inv-square-root   another share, geometric to min_lr until D
//   WSD                        lr, and lr_wsd_decay_style from lr to min_lr over the last wsd_samples before D
// With lr_warmup_tokens the warm-up counts tokens, with lr_decay_tokens what comes after it does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/lr_phases.h"

namespace espalier::plan {

enum class DecayStyle {
  kConstant,
  kLinear,
  kCosine,
  kInverseSquareRoot,
  kInfiniteCosine,
  kInfiniteInvSquareRoot,
  kWsd,
};
enum class WeightDecayStyle { kConstant, kLinear, kCosine };

// Fields are named as their options.
struct ScheduleConfig {
  std::optional<double> lr;
  double min_lr = 0;
  DecayStyle lr_decay_style = DecayStyle::kLinear;
  std::optional<int64_t> lr_decay_iters, lr_decay_samples, lr_decay_tokens, lr_warmup_tokens;
  std::optional<double> lr_warmup_fraction;
  int64_t lr_warmup_iters = 0, lr_warmup_samples = 0;
  double lr_warmup_init = 0;
  std::vector<std::string> lr_phases;
  LrShape lr_wsd_decay_style = LrShape::kExponential;
  std::optional<int64_t> lr_wsd_decay_iters, lr_wsd_decay_samples;
  bool lr_constant_plus_cooldown = false;
  double lr_constant_plus_cooldown_frac = 0.05;
  double constant_lr = 0.00011, lr_cooldown_fraction = 0.65, lr_constant_fraction = 0.001, timescale = 10;
  std::optional<int64_t> lr_cooldown_tokens, lr_constant_tokens;
  WeightDecayStyle weight_decay_incr_style = WeightDecayStyle::kConstant;
  std::optional<double> start_weight_decay, end_weight_decay;
  bool override_lr_scheduler = false, use_checkpoint_lr_scheduler = false;

  // resolved: schedules count samples. The warm-up is not a whole number when it comes from a fraction.
  double warmup_samples = 0;
  int64_t decay_samples = 0, wsd_samples = 0;
  std::vector<LrPhase> phases;       // of lr_phases, in samples from the start of the run; else empty
  int64_t weight_decay_samples = 0;  // of the ramp of weight decay: the whole run
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

  double lr() const { return place_.rate; }
  // In which phase lr() is: "warmup", "cosine"; "floor" after the last one. With --lr-phases its number as well:
  // "2 constant".
  const std::string& phase() const { return phase_; }
  // Nothing where it does not change.
  std::optional<double> weight_decay() const;
  // Moves on by the samples of a step; `num_tokens` is what the run had consumed before that step.
  void step(int64_t num_samples, int64_t num_tokens);
  const LrState& state() const { return state_; }
  void restore(const LrState& state);

 private:
  void update();
  LrPlace rate();
  LrPlace place_in(const std::vector<LrPhase>& phases, double start, double position);

  ScheduleConfig config_;
  LrState state_;
  LrPlace place_;
  std::string phase_;
};

// Whether both give the same rates and weight decays from the start of a run up to `state`, to the bit: at 1,024 places
// evenly spread and at `state` itself. A run may then continue with either.
bool same_until(const ScheduleConfig& one, const ScheduleConfig& other, const LrState& state);

}  // namespace espalier::plan
