// Cross-checks of recompute, data and checkpoint options.
#include <utility>

#include "base/format.h"
#include "config/internal/resolver.h"

namespace espalier::config::internal {

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
                  " begins at iteration 0 with the checkpoint's moments; here a new run has fresh ones. Give "
                  "--no-load-optim as well, or only --finetune");
  const bool saves_epochs = config_.family->resolve_epochs != nullptr;
  if (!checkpoint.save.empty() && !checkpoint.save_interval && !saves_epochs)
    problems_.add(origin("--save"), " needs --save-interval: steps between checkpoints");
  if (checkpoint.save_hf && checkpoint.save.empty())
    problems_.add(origin("--save-hf"), " is made from checkpoints: give --save and --save-interval");
  if (checkpoint.save_hf && checkpoint.save_interval && *checkpoint.save_hf % *checkpoint.save_interval != 0)
    problems_.add(origin("--save-hf"), " is not a multiple of --save-interval ", *checkpoint.save_interval,
                  ", and only checkpoints become Hugging Face folders");
  for (const auto& [name, value] : {std::pair{"--save-keep-last", checkpoint.save_keep_last},
                                    std::pair{"--save-keep-every", checkpoint.save_keep_every}})
    if (value && checkpoint.save.empty())
      problems_.add(origin(name), " applies to checkpoints: give --save and --save-interval");
  if (checkpoint.save_keep_epochs && checkpoint.save.empty())
    problems_.add(origin("--save-keep-epochs"), " applies to checkpoints: give --save and --save-interval");
  if (checkpoint.replication && !checkpoint.non_persistent_save_interval)
    problems_.add(
        origin("--replication"),
        " sends copies of the state to another machine: give --non-persistent-save-interval, the steps between "
        "copies");
  if (checkpoint.save_keep_every && checkpoint.save_interval &&
      *checkpoint.save_keep_every % *checkpoint.save_interval != 0)
    problems_.add(origin("--save-keep-every"), " is not a multiple of --save-interval ", *checkpoint.save_interval,
                  ", so that some of the steps to keep are never saved");
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
