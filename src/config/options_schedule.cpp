// The rows of what changes with the steps: the learning rate and the weight decay.
#include "config/internal/rows.h"
#include "config/run_config.h"

namespace espalier::config::internal {
namespace {

using plan::LrShape;
using plan::WeightDecayStyle;

void add_lengths(OptionTable& table, ScheduleConfig& schedule) {
  table.add("--lr-decay-iters", schedule.lr_decay_iters, "steps until the floor")
      .minimum(1)
      .maximum(1e12)
      .default_text("the whole run")
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-decay-samples", schedule.lr_decay_samples, "samples until the floor")
      .minimum(1)
      .maximum(1e18)
      .default_text("the whole run")
      .common()
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-decay-tokens", schedule.lr_decay_tokens, "tokens until the floor; overrides the two above")
      .minimum(1)
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-warmup-tokens", schedule.lr_warmup_tokens, "tokens that warm up, instead of the three below")
      .minimum(0)
      .maximum(9e18)
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-warmup-fraction", schedule.lr_warmup_fraction, "share of the decay that warms up")
      .minimum(0)
      .maximum(1)
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-warmup-iters", schedule.lr_warmup_iters, "steps that warm up")
      .minimum(0)
      .maximum(1e12)
      .common()
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-warmup-samples", schedule.lr_warmup_samples, "samples that warm up")
      .minimum(0)
      .maximum(1e18)
      .common()
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-warmup-init", schedule.lr_warmup_init, "learning rate at the start of the warm-up")
      .minimum(0)
      .on_resume(ResumeRule::kLearningRate);
}

// Megatron-LM's WSD: the rate holds, then falls at the end of the decay.
void add_wsd(OptionTable& table, ScheduleConfig& schedule) {
  table
      .add_choice("--lr-wsd-decay-style", schedule.lr_wsd_decay_style,
                  {{"exponential", LrShape::kExponential},
                   {"linear", LrShape::kLinear},
                   {"cosine", LrShape::kCosine},
                   {"minus_sqrt", LrShape::kMinusSqrt}},
                  "shape of the fall of --lr-decay-style WSD")
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-wsd-decay-iters", schedule.lr_wsd_decay_iters, "steps of that fall, the last of the decay")
      .minimum(1)
      .maximum(1e12)
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-wsd-decay-samples", schedule.lr_wsd_decay_samples, "samples of that fall, the last of the decay")
      .minimum(1)
      .maximum(1e18)
      .on_resume(ResumeRule::kLearningRate);
}

// Argonne's fork.
void add_holding(OptionTable& table, ScheduleConfig& schedule) {
  table
      .add("--lr_constant_plus_cooldown", schedule.lr_constant_plus_cooldown,
           "--lr-decay-style constant falls to --min-lr at the end of the decay, by 1 - sqrt")
      .on_resume(ResumeRule::kLearningRate);
  table
      .add("--lr_constant_plus_cooldown_frac", schedule.lr_constant_plus_cooldown_frac, "share of the decay that falls")
      .minimum(0)
      .maximum(1)
      .on_resume(ResumeRule::kLearningRate);
  table.add("--constant-lr", schedule.constant_lr, "rate that the infinite-* styles hold after their first fall")
      .minimum(0)
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-cooldown-fraction", schedule.lr_cooldown_fraction, "share of the decay in which they fall to it")
      .minimum(0)
      .maximum(1)
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-constant-fraction", schedule.lr_constant_fraction, "share of the decay in which they hold it")
      .minimum(0)
      .maximum(1)
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-cooldown-tokens", schedule.lr_cooldown_tokens, "tokens instead of that share, with --lr-decay-tokens")
      .minimum(0)
      .on_resume(ResumeRule::kLearningRate);
  table.add("--lr-constant-tokens", schedule.lr_constant_tokens, "tokens instead of that share, with --lr-decay-tokens")
      .minimum(0)
      .on_resume(ResumeRule::kLearningRate);
  table.add("--timescale", schedule.timescale, "steepness of infinite-inv-square-root")
      .minimum(0)
      .on_resume(ResumeRule::kLearningRate);
}

}  // namespace

void add_learning_rate(OptionTable& table, RunConfig& config) {
  ScheduleConfig& schedule = config.schedule;
  table.group("learning rate");
  table.add("--lr", schedule.lr, "largest learning rate").minimum(0).common().on_resume(ResumeRule::kLearningRate);
  table.add("--min-lr", schedule.min_lr, "floor of the schedule")
      .minimum(0)
      .common()
      .on_resume(ResumeRule::kLearningRate);
  table
      .add_choice("--lr-decay-style", schedule.lr_decay_style,
                  {{"linear", DecayStyle::kLinear},
                   {"cosine", DecayStyle::kCosine},
                   {"constant", DecayStyle::kConstant},
                   {"inverse-square-root", DecayStyle::kInverseSquareRoot},
                   {"WSD", DecayStyle::kWsd},
                   {"infinite-cosine", DecayStyle::kInfiniteCosine},
                   {"infinite-inv-square-root", DecayStyle::kInfiniteInvSquareRoot}},
                  "shape after the warm-up")
      .common()
      .on_resume(ResumeRule::kLearningRate);
  table
      .add("--lr-phases", schedule.lr_phases,
           "the whole schedule as SHAPE:LENGTH[:FROM[:TO]] ..., instead of --lr-decay-* and --lr-warmup-*; lengths in "
           "steps, or with samples, tokens or rest: linear:100 constant:rest minus-sqrt:200")
      .value_name("PHASE")
      .on_resume(ResumeRule::kLearningRate);
  add_lengths(table, schedule);
  add_wsd(table, schedule);
  add_holding(table, schedule);
  table
      .add("--override-lr-scheduler", schedule.override_lr_scheduler,
           "on --load, these options override the checkpoint's")
      .alias("--override-opt_param-scheduler")
      .on_resume(ResumeRule::kFree);
  table
      .add("--use-checkpoint-lr-scheduler", schedule.use_checkpoint_lr_scheduler,
           "on --load, the checkpoint's override these options")
      .alias("--use-checkpoint-opt_param-scheduler")
      .on_resume(ResumeRule::kFree);
  add_learning_rate_inert(table);
}

void add_weight_decay_ramp(OptionTable& table, ScheduleConfig& schedule) {
  table
      .add_choice("--weight-decay-incr-style", schedule.weight_decay_incr_style,
                  {{"constant", WeightDecayStyle::kConstant},
                   {"linear", WeightDecayStyle::kLinear},
                   {"cosine", WeightDecayStyle::kCosine}},
                  "how weight decay grows over the run, from and to the two below")
      .on_resume(ResumeRule::kLearningRate);
  table.add("--start-weight-decay", schedule.start_weight_decay, "weight decay of the first step")
      .minimum(0)
      .on_resume(ResumeRule::kLearningRate);
  table.add("--end-weight-decay", schedule.end_weight_decay, "weight decay at the end of the run")
      .minimum(0)
      .on_resume(ResumeRule::kLearningRate);
}

}  // namespace espalier::config::internal
