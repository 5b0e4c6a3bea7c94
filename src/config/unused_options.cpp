#include "config/unused_options.h"

#include <set>

#include "base/error.h"
#include "base/format.h"
#include "config/family.h"
#include "spec/optimizer.h"

namespace espalier::config {
namespace {

// What DeepSpeed's JSON or a derivation set is not the user's to fix.
bool is_said(const Option& option) {
  if (!option.given()) return false;
  if (option.source() == "command line") return true;
  return option.source().find(": ") == std::string::npos && option.values() != option.default_values();
}

class Search {
 public:
  Search(const RunConfig& config, const OptionTable& table) : config_(config), table_(table), unused_(table) {}

  std::vector<std::string> run() {
    config_.family->find_unused(config_, unused_);
    search_stages();
    search_training();
    search_recompute();
    search_schedule();
    search_optimizer();
    search_loss_scale();
    search_folders();
    search_parallel();
    search_tokenizer();
    return unused_.messages();
  }

 private:
  using Names = std::initializer_list<const char*>;
  void add_if(bool is_unused, Names names, const std::string& reason) { unused_.add_if(is_unused, names, reason); }
  void add_typed_if(bool is_unused, Names names, const std::string& reason) {
    unused_.add_typed_if(is_unused, names, reason);
  }

  void search_stages();
  void search_training();
  void search_recompute();
  void search_schedule();
  void search_optimizer();
  void search_loss_scale();
  void search_folders();
  void search_parallel();
  void search_tokenizer();

  const RunConfig& config_;
  const OptionTable& table_;
  UnusedOptions unused_;
};

// The first stage of a list, in the order of the run, begins after the run has ended.
void Search::search_stages() {
  const int64_t end = config_.training.num_samples;
  const auto never = [&](int64_t first) {
    return concat("its first stage begins at sample ", format_count(first), ", and the run ends at ",
                  format_count(end));
  };
  if (end <= 0) return;
  const std::vector<data::LengthStage>& lengths = config_.data.length_stages;
  if (!lengths.empty() && lengths.front().first_sample >= end)
    add_if(true, {"--seq-length-stages"}, never(lengths.front().first_sample));
  if (config_.data.data_stages.empty()) return;
  try {
    const int64_t first = first_sample_of(config_, data::split_stage(config_.data.data_stages.front(), "").first);
    add_if(first >= end, {"--data-stages"}, never(first));
  } catch (const UserError&) {
    return;  // what is wrong with it is told by plan_data()
  }
}

void Search::search_training() {
  const TrainingConfig& training = config_.training;
  add_if(config_.data.seq_length_stages.empty(), {"--seq-length-stages-by"}, "there are no --seq-length-stages");
  const double tokens = static_cast<double>(training.num_samples) * static_cast<double>(config_.data.sequence_length);
  add_if(training.train_tokens && tokens < static_cast<double>(*training.train_tokens), {"--train-tokens"},
         concat("the run ends after ", training.num_steps, " steps with ", format_shortest(tokens), " tokens"));
  add_if(training.num_steps > 0 && training.profile_step_start.value_or(0) >= training.num_steps,
         {"--profile", "--profile-step-start", "--profile-step-end"},
         concat("the run has ", training.num_steps, " steps"));
  add_if(!training.adjust_word_embedding_init, {"--word-embedding-init-std"},
         "only --adjust-word-embedding-init reads it");
  add_if(training.init_method_xavier_uniform, {"--init-method-std"},
         "--init-method-xavier-uniform derives the bounds from the shapes");
}

void Search::search_recompute() {
  const TrainingConfig& training = config_.training;
  const ParallelConfig& parallel = config_.parallel;
  const bool is_kept = training.recompute.kind == Recompute::Kind::kNone;
  add_if(is_kept,
         {"--checkpoint-num-layers", "--recompute-num-layers", "--recompute-method", "--partition-activations"},
         "nothing is recomputed without --checkpoint-activations or --recompute-granularity full");
  add_if(!is_kept && !parallel.distribute_saved_activations,
         {"--partition-activations", "--distribute-checkpointed-activations"},
         parallel.sequence_parallel && config_.grid.tensor > 1
             ? "--sequence-parallel has already divided what recompute keeps"
             : "a single tensor rank keeps all of it");
}

void Search::search_schedule() {
  const ScheduleConfig& schedule = config_.schedule;
  const DecayStyle style = schedule.lr_decay_style;
  const bool cools = schedule.lr_constant_plus_cooldown && style == DecayStyle::kConstant;
  const bool is_constant = style == DecayStyle::kConstant && !cools && schedule.lr_phases.empty();
  const bool is_infinite = style == DecayStyle::kInfiniteCosine || style == DecayStyle::kInfiniteInvSquareRoot;
  // A share of the decay that warms up needs its length in any case.
  const bool by_share = schedule.lr_warmup_fraction.has_value();
  const char* const constant = "--lr-decay-style constant does not decay";
  add_if(is_constant, {"--min-lr", "--lr-decay-tokens"}, constant);
  add_if(is_constant && !by_share, {"--lr-decay-iters", "--lr-decay-samples"}, constant);
  add_if(!is_constant && !by_share && schedule.lr_decay_tokens, {"--lr-decay-iters", "--lr-decay-samples"},
         "--lr-decay-tokens wins");
  add_if(style != DecayStyle::kWsd, {"--lr-wsd-decay-style", "--lr-wsd-decay-iters", "--lr-wsd-decay-samples"},
         "only --lr-decay-style WSD reads it");
  add_if(!cools, {"--lr_constant_plus_cooldown"}, "only --lr-decay-style constant reads it");
  add_if(!cools, {"--lr_constant_plus_cooldown_frac"}, "only --lr_constant_plus_cooldown reads it");
  add_if(!is_infinite, {"--constant-lr", "--lr-cooldown-fraction", "--lr-constant-fraction"},
         "only the infinite-* decay styles read it");
  add_if(!is_infinite || !schedule.lr_decay_tokens, {"--lr-cooldown-tokens", "--lr-constant-tokens"},
         is_infinite ? "there is no --lr-decay-tokens" : "only the infinite-* decay styles read it");
  add_if(style != DecayStyle::kInfiniteInvSquareRoot, {"--timescale"},
         "only --lr-decay-style infinite-inv-square-root reads it");
  const bool warms = schedule.warmup_samples > 0 || schedule.lr_warmup_tokens.value_or(0) > 0;
  add_if(!warms, {"--lr-warmup-init"}, "nothing warms up");
}

void Search::search_optimizer() {
  const spec::OptimizerKind& chosen = spec::optimizer_kind(config_.optimizer);
  std::set<std::string> seen;
  for (const spec::OptimizerKind& kind : spec::optimizer_kinds())
    for (const char* option : kind.options)
      if (seen.insert(option).second)
        add_if(!chosen.reads(option), {option}, concat("--optimizer ", chosen.name(), " does not read it"));
  add_if(!spec::clips_logits(config_.optimizer), {"--qk-clip-threshold", "--qk-clip-alpha"},
         "there is neither --qk-clip nor --optimizer muonclip");
}

void Search::search_loss_scale() {
  add_if(config_.training.skip_step_sigma == 0, {"--skip-step-window"}, "there is no --skip-step-sigma");
  add_if(config_.training.spike_policy == SpikePolicy::kRollBack && config_.checkpoint.save.empty(), {"--spike-policy"},
         "there is no --save, so no checkpoint to go back to");
  const OptimizerConfig& optimizer = config_.optimizer;
  add_if(config_.training.fp8 == spec::Fp8::kNone, {"--fp8-recipe"}, "only --fp8-format reads it");
  add_if(!config_.training.fp16, {"--loss-scale"}, "only --fp16 scales the loss");
  const bool is_constant = optimizer.loss_scale.value_or(0) > 0;
  add_if(!config_.training.fp16 || is_constant,
         {"--initial-loss-scale", "--min-loss-scale", "--loss-scale-window", "--hysteresis"},
         config_.training.fp16 ? concat("the loss scale is constant, ", table_.origin("--loss-scale"))
                               : "only --fp16 scales the loss");
}

void Search::search_folders() {
  const CheckpointConfig& checkpoint = config_.checkpoint;
  add_typed_if(checkpoint.save.empty(), {"--save-interval"}, "there is no --save");
  add_typed_if(checkpoint.load.empty(), {"--override-lr-scheduler", "--use-checkpoint-lr-scheduler", "--override"},
               "there is no --load");
  add_typed_if(!checkpoint.replication, {"--replication-jump", "--replication-factor"}, "there is no --replication");
  add_typed_if(checkpoint.save.empty() && config_.logging.tensorboard_dir.empty(),
               {"--tensorboard-log-interval", "--log-timers-to-tensorboard", "--log-batch-size-to-tensorboard",
                "--no-log-learnig-rate-to-tensorboard", "--no-log-loss-scale-to-tensorboard",
                "--log-validation-ppl-to-tensorboard"},
               "there is neither --tensorboard-dir nor --save");
}

void Search::search_parallel() {
  const spec::GridShape& grid = config_.grid;
  add_typed_if(grid.tensor == 1, {"--sequence-parallel"}, "one tensor rank has the whole sequence");
  add_typed_if(grid.pipeline == 1, {"--pp-partition-method"}, "one pipeline stage has all layers");
  add_typed_if(grid.pipeline == 1, {"--enable-zbh1-pipeline"}, "a pipeline of one stage has no bubbles");
}

void Search::search_tokenizer() {
  const std::string& type = config_.tokenizer.type;
  const std::string reason = concat("--tokenizer-type ", type, " does not read it");
  const bool is_bert = type.starts_with("BertWordPiece"), is_gpt2 = type == "GPT2BPETokenizer";
  const bool is_hub_path = type == "HFTokenizer" || type == "HuggingFaceTokenizer";
  const bool is_tiktoken = type == "TikTokenizer", is_null = type == "NullTokenizer";
  const bool by_path = type == "PretrainedFromHF";
  add_if(!is_bert && !is_gpt2, {"--vocab-file"}, reason);
  add_if(!is_gpt2, {"--merge-file"}, reason);
  add_if(!by_path && !is_hub_path, {"--tokenizer-name-or-path"}, reason);
  add_if(is_bert || is_gpt2 || by_path || is_null, {"--tokenizer-model"}, reason);
  add_if(is_hub_path && !config_.tokenizer.name_or_path.empty(), {"--tokenizer-model"},
         "--tokenizer-name-or-path wins");
  add_if(!is_tiktoken && !is_null, {"--vocab-size"}, reason);
  add_if(!is_tiktoken, {"--tiktoken-pattern", "--tiktoken-num-special-tokens", "--tiktoken-special-tokens"}, reason);
}

}  // namespace

void UnusedOptions::add_if(bool is_unused, std::initializer_list<const char*> names, const std::string& reason) {
  if (!is_unused) return;
  for (const char* name : names) {
    const Option& option = *table_.find(name);
    const bool taken_back = option.is_flag() && option.values() == std::vector<std::string>{"false"};
    if (is_said(option) && !taken_back) messages_.push_back(table_.origin(name) + " has no effect: " + reason);
  }
}

void UnusedOptions::add_typed_if(bool is_unused, std::initializer_list<const char*> names, const std::string& reason) {
  for (const char* name : names)
    if (table_.find(name)->source() == "command line") add_if(is_unused, {name}, reason);
}

std::vector<std::string> unused_options(const RunConfig& config, const OptionTable& table) {
  return Search(config, table).run();
}

}  // namespace espalier::config
