// Cross-checks of learning rate, recompute and checkpoint options.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/format.h"
#include "config/internal/resolver.h"

namespace espalier::config::internal {
void Resolver::check_exclusive_schedule() {
  const ScheduleConfig& schedule = config_.schedule;
  const bool by_iters = config_.training.train_iters.has_value();
  const char* length = by_iters ? "--train-iters" : "--train-samples";
  const auto refuse = [&](const char* name, const char* instead) {
    problems_.add(origin(name), " does not go with ", length, "; use ", instead);
  };
  if (by_iters && schedule.lr_decay_samples) refuse("--lr-decay-samples", "--lr-decay-iters");
  if (by_iters && schedule.lr_warmup_samples > 0) refuse("--lr-warmup-samples", "--lr-warmup-iters");
  if (!by_iters && schedule.lr_decay_iters) refuse("--lr-decay-iters", "--lr-decay-samples");
  if (!by_iters && schedule.lr_warmup_iters > 0) refuse("--lr-warmup-iters", "--lr-warmup-samples");
  const char* warmup = by_iters ? "--lr-warmup-iters" : "--lr-warmup-samples";
  if (schedule.lr_warmup_fraction && (by_iters ? schedule.lr_warmup_iters : schedule.lr_warmup_samples) > 0)
    problems_.add(origin("--lr-warmup-fraction"), " and ", origin(warmup), " exclude each other; give one");
}

void Resolver::check_warmup_tokens() {
  const ScheduleConfig& schedule = config_.schedule;
  if (!schedule.lr_warmup_tokens) return;
  for (const auto& [name, is_set] : {std::pair("--lr-warmup-fraction", schedule.lr_warmup_fraction.has_value()),
                                     std::pair("--lr-warmup-iters", schedule.lr_warmup_iters > 0),
                                     std::pair("--lr-warmup-samples", schedule.lr_warmup_samples > 0)})
    if (is_set) problems_.add(origin("--lr-warmup-tokens"), " and ", origin(name), " exclude each other; give one");
  const int64_t length = std::max<int64_t>(1, config_.data.sequence_length);
  const int64_t end = schedule.lr_decay_tokens.value_or(schedule.decay_samples * length);
  if (*schedule.lr_warmup_tokens >= end)
    problems_.add(origin("--lr-warmup-tokens"), " does not end before the decay does, at ", end, " tokens",
                  schedule.lr_decay_tokens ? concat(" (", origin("--lr-decay-tokens"), ")") : "", "; use at most ",
                  end - 1, " or a later end");
}

void Resolver::resolve_schedule() {
  ScheduleConfig& schedule = config_.schedule;
  const TrainingConfig& training = config_.training;
  if (schedule.override_lr_scheduler && schedule.use_checkpoint_lr_scheduler)
    problems_.add("--override-lr-scheduler and --use-checkpoint-lr-scheduler exclude each other; give one");
  if (!schedule.lr && !config_.data.eval_only && !config_.plan_only)
    problems_.add("--lr is required: the largest learning rate, such as 3e-4");
  if (!schedule.lr) schedule.lr = schedule.min_lr;  // --eval-only, or a plan: no step takes it
  if (schedule.min_lr > *schedule.lr && given("--lr"))
    problems_.add(origin("--min-lr"), " is above ", origin("--lr"), "; use at most ", format_shortest(*schedule.lr));
  if (!training.train_iters && !training.train_samples) {
    schedule.decay_samples = 1;  // --eval-only, a plan, or a problem that is told elsewhere
    return;
  }
  check_exclusive_schedule();
  if (training.num_steps == 0) return;  // after a problem
  const int64_t batch = *training.global_batch_size;
  const bool by_iters = training.train_iters.has_value();
  schedule.decay_samples = by_iters ? schedule.lr_decay_iters.value_or(*training.train_iters) * batch
                                    : schedule.lr_decay_samples.value_or(*training.train_samples);
  const double decay = static_cast<double>(schedule.decay_samples);
  schedule.warmup_samples =
      static_cast<double>(by_iters ? schedule.lr_warmup_iters * batch : schedule.lr_warmup_samples);
  if (schedule.lr_warmup_fraction) schedule.warmup_samples = *schedule.lr_warmup_fraction * decay;
  check_warmup_tokens();
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

void Resolver::resolve_recompute() {
  TrainingConfig& training = config_.training;
  if (!training.activations_checkpoint_method.empty()) {
    training.checkpoint_activations = true;
    const bool is_block = training.activations_checkpoint_method == "block";
    training.recompute_method = is_block ? RecomputeMethod::kBlock : RecomputeMethod::kUniform;
  }
  const bool is_full = training.checkpoint_activations || training.recompute_granularity == RecomputeGranularity::kFull;
  if (training.checkpoint_activations && training.recompute_granularity == RecomputeGranularity::kSelective)
    problems_.add("--checkpoint-activations means --recompute-granularity full, not selective; give one");
  if (!is_full) {
    for (const char* name : {"--recompute-method", "--recompute-num-layers"})
      if (given(name) && training.recompute_granularity != RecomputeGranularity::kNone)
        problems_.add(origin(name), " needs --recompute-granularity full");
    if (config_.parallel.distribute_checkpointed_activations)
      problems_.add(origin("--distribute-checkpointed-activations"),
                    " needs --checkpoint-activations or --recompute-granularity full: it divides what they keep");
    return;
  }
  const ParallelConfig& parallel = config_.parallel;
  config_.parallel.distribute_saved_activations =
      (parallel.distribute_checkpointed_activations || parallel.partition_activations) && config_.grid.tensor > 1 &&
      !parallel.sequence_parallel;  // which has divided them already
  if (training.checkpoint_num_layers && training.recompute_num_layers &&
      *training.checkpoint_num_layers != *training.recompute_num_layers)
    problems_.add(origin("--checkpoint-num-layers"), " and ", origin("--recompute-num-layers"),
                  " are the same option; give one");
  const int64_t layers = training.recompute_num_layers.value_or(training.checkpoint_num_layers.value_or(1));
  const bool is_block = training.recompute_method == RecomputeMethod::kBlock;
  training.recompute = {is_block ? Recompute::Kind::kBlock : Recompute::Kind::kUniform, layers};
  if (layers > num_layers() && num_layers() > 0)
    problems_.add(origin(training.recompute_num_layers ? "--recompute-num-layers" : "--checkpoint-num-layers"),
                  " is more than ", origin("--num-layers"), "; use at most ", num_layers());
}

void Resolver::resolve_data() {
  DataConfig& data = config_.data;
  data.weighted_splits = !data.train_weighted_split_paths.empty() || !data.train_weighted_split_paths_path.empty();
  const bool is_split = !data.data_path.empty() || !data.data_file_list.empty();
  // Split paths on the command line win over a recipe's --split, as flags do over a recipe.
  const auto on_command_line = [&](const char* name) {
    return given(name) && table_.find(name)->source() == "command line";
  };
  if ((on_command_line("--train-weighted-split-paths") || on_command_line("--train-weighted-split-paths-path")) &&
      !on_command_line("--split"))
    data.split.clear();
  if (is_split && !data.weighted_splits && data.split.empty()) data.split = "969, 30, 1";
}

void Resolver::resolve_checkpoint() {
  CheckpointConfig& checkpoint = config_.checkpoint;
  if (checkpoint.reset_progress && !checkpoint.no_load_optim)
    problems_.add(origin("--reset-progress"),
                  " begins at iteration 0 with the checkpoint's moments; here a run that begins anew has fresh ones. "
                  "Give --no-load-optim as well, or --finetune alone");
  if (!checkpoint.save.empty() && !checkpoint.save_interval)
    problems_.add(origin("--save"), " needs --save-interval: steps between checkpoints");
  if (checkpoint.load.empty()) {
    for (const char* name : {"--ckpt-step", "--finetune", "--reset-progress", "--no-load-optim"})
      if (given(name) && !table_.find(name)->values().empty() && table_.find(name)->values()[0] != "false")
        problems_.add(origin(name), " needs --load: the folder to load from");
  }
  checkpoint.finetune = checkpoint.finetune || checkpoint.reset_progress;
  checkpoint.reset_progress = false;
  for (const std::string& name : checkpoint.overrides) {
    if (table_.find(name) != nullptr) continue;
    std::vector<std::string> names;
    for (const auto& option : table_.options()) names.push_back(normal_option_name(option->name()));
    const std::vector<std::string> near = nearest_names(normal_option_name(name), names);
    problems_.add("--override ", name, " names no option",
                  near.empty() ? "" : "; did you mean " + join(near, ", ") + "?");
  }
}

}  // namespace espalier::config::internal
