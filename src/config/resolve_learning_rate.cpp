// The learning rate and the weight decay: lengths in samples, and what contradicts what.
#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/log.h"
#include "config/internal/resolver.h"

namespace espalier::config::internal {

using plan::DecayStyle;

void Resolver::check_exclusive_schedule() {
  const ScheduleConfig& schedule = config_.schedule;
  const bool by_iters = config_.training.train_iters.has_value();
  const char* length = by_iters ? "--train-iters" : "--train-samples";
  const auto refuse = [&](const char* name, const char* instead) {
    problems_.add(origin(name), " cannot be combined with ", length, "; use ", instead);
  };
  if (by_iters && schedule.lr_decay_samples) refuse("--lr-decay-samples", "--lr-decay-iters");
  if (by_iters && schedule.lr_warmup_samples > 0) refuse("--lr-warmup-samples", "--lr-warmup-iters");
  if (!by_iters && schedule.lr_decay_iters) refuse("--lr-decay-iters", "--lr-decay-samples");
  if (!by_iters && schedule.lr_warmup_iters > 0) refuse("--lr-warmup-iters", "--lr-warmup-samples");
  const char* warmup = by_iters ? "--lr-warmup-iters" : "--lr-warmup-samples";
  if (schedule.lr_warmup_fraction && (by_iters ? schedule.lr_warmup_iters : schedule.lr_warmup_samples) > 0)
    problems_.add(origin("--lr-warmup-fraction"), " and ", origin(warmup), " are mutually exclusive; give one");
}

void Resolver::check_warmup_tokens() {
  const ScheduleConfig& schedule = config_.schedule;
  if (!schedule.lr_warmup_tokens) return;
  for (const auto& [name, is_set] : {std::pair("--lr-warmup-fraction", schedule.lr_warmup_fraction.has_value()),
                                     std::pair("--lr-warmup-iters", schedule.lr_warmup_iters > 0),
                                     std::pair("--lr-warmup-samples", schedule.lr_warmup_samples > 0)})
    if (is_set) problems_.add(origin("--lr-warmup-tokens"), " and ", origin(name), " are mutually exclusive; give one");
  const int64_t length = std::max<int64_t>(1, config_.data.sequence_length);
  const int64_t end = schedule.lr_decay_tokens.value_or(schedule.decay_samples * length);
  if (*schedule.lr_warmup_tokens >= end)
    problems_.add(origin("--lr-warmup-tokens"), " does not end before the decay does, at ", end, " tokens",
                  schedule.lr_decay_tokens ? concat(" (", origin("--lr-decay-tokens"), ")") : "", "; use at most ",
                  end - 1, " or a later end");
}

void Resolver::resolve_weight_decay() {
  ScheduleConfig& schedule = config_.schedule;
  schedule.weight_decay_samples = config_.training.num_samples;
  const bool is_ramp = schedule.weight_decay_incr_style != plan::WeightDecayStyle::kConstant;
  for (const auto& [name, value] : {std::pair("--start-weight-decay", schedule.start_weight_decay),
                                    std::pair("--end-weight-decay", schedule.end_weight_decay)}) {
    if (is_ramp && !value)
      problems_.add(origin("--weight-decay-incr-style"), " needs ", name);
    else if (!is_ramp && value)
      problems_.add(origin(name),
                    " needs --weight-decay-incr-style linear or cosine; for one weight decay use "
                    "--weight-decay");
  }
  if (schedule.start_weight_decay && schedule.end_weight_decay &&
      *schedule.start_weight_decay > *schedule.end_weight_decay)
    problems_.add(origin("--start-weight-decay"), " is above ", origin("--end-weight-decay"), "; it can only grow");
}

void Resolver::resolve_phases() {
  ScheduleConfig& schedule = config_.schedule;
  const TrainingConfig& training = config_.training;
  for (const char* name :
       {"--lr-decay-style", "--lr-decay-iters", "--lr-decay-samples", "--lr-decay-tokens", "--lr-warmup-tokens",
        "--lr-warmup-fraction", "--lr-warmup-iters", "--lr-warmup-samples", "--lr-warmup-init", "--lr-wsd-decay-iters",
        "--lr-wsd-decay-samples", "--lr-constant-plus-cooldown"})
    if (is_said(name)) problems_.add(origin("--lr-phases"), " is the whole schedule; leave out ", origin(name));
  schedule.phases = plan::read_phases(schedule.lr_phases,
                                      {.peak = *schedule.lr,
                                       .floor = schedule.min_lr,
                                       .counts_steps = training.train_iters.has_value(),
                                       .samples_a_step = *training.global_batch_size,
                                       .tokens_a_sample = std::max<int64_t>(1, config_.data.sequence_length),
                                       .samples = training.num_samples},
                                      origin("--lr-phases"), problems_);
  // What other programs are told of a schedule.
  schedule.decay_samples = training.num_samples;
  double largest = 0;
  for (const plan::LrPhase& phase : schedule.phases) largest = std::max({largest, phase.from, phase.to});
  if (largest > *schedule.lr)
    problems_.add(origin("--lr-phases"), " has the rate ", format_shortest(largest), ", above ", origin("--lr"),
                  ": give the largest as --lr");
}

// What one style of decay alone needs.
void Resolver::check_decay_style() {
  ScheduleConfig& schedule = config_.schedule;
  const std::string style = origin("--lr-decay-style");
  const double decay = static_cast<double>(schedule.lr_decay_tokens.value_or(schedule.decay_samples));
  const bool by_iters = config_.training.train_iters.has_value();
  const bool is_infinite = schedule.lr_decay_style == DecayStyle::kInfiniteCosine ||
                           schedule.lr_decay_style == DecayStyle::kInfiniteInvSquareRoot;
  if (schedule.lr_decay_style == DecayStyle::kWsd) {
    const char* name = by_iters ? "--lr-wsd-decay-iters" : "--lr-wsd-decay-samples";
    const std::optional<int64_t>& length = by_iters ? schedule.lr_wsd_decay_iters : schedule.lr_wsd_decay_samples;
    const char* other = by_iters ? "--lr-wsd-decay-samples" : "--lr-wsd-decay-iters";
    if (given(other))
      problems_.add(origin(other), " cannot be combined with ", by_iters ? "--train-iters" : "--train-samples",
                    "; use ", name);
    if (schedule.lr_decay_tokens)
      problems_.add(style, " counts ", by_iters ? "steps" : "samples", "; leave out ", origin("--lr-decay-tokens"));
    if (!length) {
      problems_.add(style, " needs ", name, ": the share of the decay that falls");
      return;
    }
    schedule.wsd_samples = *length * (by_iters ? *config_.training.global_batch_size : 1);
    if (schedule.warmup_samples + static_cast<double>(schedule.wsd_samples) > decay)
      problems_.add(origin(name), " is longer than what the warm-up leaves of the decay; use fewer, or a longer decay");
  }
  if (!is_infinite) return;
  const auto length = [&](const std::optional<int64_t>& tokens, double share) {
    return tokens && schedule.lr_decay_tokens ? static_cast<double>(*tokens) : share * decay;
  };
  const double warmup =
      schedule.lr_decay_tokens ? static_cast<double>(schedule.lr_warmup_tokens.value_or(0)) : schedule.warmup_samples;
  if (schedule.min_lr <= 0) problems_.add(style, " ends by a constant factor a step: it needs --min-lr above 0");
  if (schedule.constant_lr <= schedule.min_lr || schedule.constant_lr > *schedule.lr)
    problems_.add(origin("--constant-lr"), " is not between --min-lr, ", format_shortest(schedule.min_lr),
                  ", and --lr, ", format_shortest(*schedule.lr));
  if (schedule.lr_decay_style == DecayStyle::kInfiniteInvSquareRoot && schedule.timescale <= 0)
    problems_.add(origin("--timescale"), " must be above 0");
  if (warmup + length(schedule.lr_cooldown_tokens, schedule.lr_cooldown_fraction) +
          length(schedule.lr_constant_tokens, schedule.lr_constant_fraction) >=
      decay)
    problems_.add(style,
                  ": warm-up, --lr-cooldown-fraction and --lr-constant-fraction leave none of the decay for the fall "
                  "to --min-lr");
}

void Resolver::resolve_schedule() {
  ScheduleConfig& schedule = config_.schedule;
  const TrainingConfig& training = config_.training;
  if (schedule.override_lr_scheduler && schedule.use_checkpoint_lr_scheduler)
    problems_.add("--override-lr-scheduler and --use-checkpoint-lr-scheduler are mutually exclusive; give one");
  if (!schedule.lr && !config_.data.eval_only && !config_.plan_only)
    problems_.add("--lr is required: the largest learning rate, such as 3e-4");
  if (!schedule.lr) schedule.lr = schedule.min_lr;  // --eval-only, or a plan: no step takes it
  for (const auto& [name, rate] :
       {std::pair("--min-lr", schedule.min_lr), std::pair("--lr-warmup-init", schedule.lr_warmup_init)})
    if (rate > *schedule.lr && given("--lr"))
      problems_.add(origin(name), " is above ", origin("--lr"), "; use at most ", format_shortest(*schedule.lr));
  if (given("--lr") && *schedule.lr == 0 && table_.says_notes())
    warn_once(origin("--lr") + ": no step changes a weight");
  if (!training.train_iters && !training.train_samples) {
    schedule.decay_samples = 1;  // --eval-only, a plan, or a problem that is reported elsewhere
    return;
  }
  check_exclusive_schedule();
  if (training.num_steps == 0) return;  // after a problem
  resolve_weight_decay();
  if (!schedule.lr_phases.empty()) return resolve_phases();
  const int64_t batch = *training.global_batch_size;
  const bool by_iters = training.train_iters.has_value();
  schedule.decay_samples = by_iters ? schedule.lr_decay_iters.value_or(*training.train_iters) * batch
                                    : schedule.lr_decay_samples.value_or(*training.train_samples);
  const double decay = static_cast<double>(schedule.decay_samples);
  schedule.warmup_samples =
      static_cast<double>(by_iters ? schedule.lr_warmup_iters * batch : schedule.lr_warmup_samples);
  if (schedule.lr_warmup_fraction) schedule.warmup_samples = *schedule.lr_warmup_fraction * decay;
  check_warmup_tokens();
  check_decay_style();
  if (schedule.warmup_samples < decay) return;
  const char* warmup = schedule.lr_warmup_fraction ? "--lr-warmup-fraction"
                       : by_iters                  ? "--lr-warmup-iters"
                                                   : "--lr-warmup-samples";
  const char* end = by_iters ? "--lr-decay-iters" : "--lr-decay-samples";
  const int64_t unit = by_iters ? batch : 1;
  problems_.add(origin(warmup), " does not end before the decay does, at ", schedule.decay_samples / unit,
                by_iters ? " steps" : " samples", given(end) ? "" : " (the whole run)", "; use ",
                schedule.lr_warmup_fraction ? "a share below 1" : concat("at most ", schedule.decay_samples / unit - 1),
                " or a later ", end);
}

}  // namespace espalier::config::internal
