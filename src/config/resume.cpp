#include "config/resume.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/format.h"
#include "base/hash.h"
#include "config/run_config.h"
#include "plan/batch_ramp.h"
#include "spec/optimizer.h"
#include "spec/state_storage.h"
#include "spec/stored_state.h"
#include "text/tokenizer.h"

namespace espalier::config {

using Rule = ResumeRule;

namespace {

// Facts that --override may name although they are not options.
const std::vector<std::string>& extra_names() {
  static const std::vector<std::string> names = {"sample_order", "random_scheme", "tokenizer"};
  return names;
}

std::string value_of(const OptionTable& table, const std::string& key) {
  const Option* option = table.find("--" + key);
  return option == nullptr || option->values().empty() ? "(unset)" : option->toml_value();
}

bool is_set(const OptionTable& table, const std::string& key) { return value_of(table, key) != "(unset)"; }

// Without --lr-decay-* the decay ends with the run, so that the length of the run is part of the schedule. A list of
// phases has its own lengths, but for one that takes the rest.
bool decay_follows_length(const OptionTable& table) {
  if (is_set(table, "lr_phases")) return value_of(table, "lr_phases").find(":rest") != std::string::npos;
  return !is_set(table, "lr_decay_iters") && !is_set(table, "lr_decay_samples") && !is_set(table, "lr_decay_tokens") &&
         (value_of(table, "lr_decay_style") != "\"constant\"" ||
          value_of(table, "lr_constant_plus_cooldown") == "true");
}

// The row's, but for three that depend on others.
ResumeRule rule_of(const Option& option, const OptionTable& saved, const OptionTable& present) {
  const std::string key = option.key();
  if ((key == "train_iters" || key == "train_samples") &&
      (decay_follows_length(saved) || decay_follows_length(present)))
    return Rule::kLearningRate;
  // A parameter has this size only where positions are learned.
  if (key == "max_position_embeddings" && value_of(saved, "position_embedding_type") != "\"absolute\"")
    return Rule::kOverride;
  if (key == "pad_vocab_size_to" && !is_set(present, key)) return Rule::kFree;  // the model keeps its own
  return option.resume_rule();
}

std::string key_of(std::string name) {
  name.erase(0, name.find_first_not_of('-'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool overridden(const ResumeFlags& flags, const std::string& key) {
  return std::any_of(flags.overrides.begin(), flags.overrides.end(),
                     [&](const std::string& name) { return key_of(name) == key; });
}

std::string flag_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

void check_difference(const OptionDifference& difference, const ResumeFlags& flags, Problems& problems) {
  const std::string what = concat(flag_of(difference.key), ": the checkpoint has ", difference.saved,
                                  ", the command line ", difference.present);
  switch (difference.rule) {
    case Rule::kFree: return;
    case Rule::kRefused:
      problems.add(what, ". The shape of a model cannot change: give the checkpoint's value.");
      return;
    case Rule::kLearningRate:
      if (!flags.override_lr_scheduler && !flags.use_checkpoint_lr_scheduler && !flags.same_rates_so_far)
        problems.add(what,
                     ". Say which counts: --override-lr-scheduler (the command line) or "
                     "--use-checkpoint-lr-scheduler (the checkpoint).");
      return;
    case Rule::kOverride:
      if (!overridden(flags, difference.key))
        problems.add(what, ". It changes what is learnt: give the checkpoint's value, or --override ", difference.key,
                     ".");
      return;
  }
}

// A misspelt name must not pass for a permission that was not needed.
void check_override_names(const OptionTable& present, const ResumeFlags& flags, Problems& problems) {
  std::vector<std::string> known = extra_names();
  for (const auto& option : present.options()) known.push_back(option->key());
  for (const std::string& name : flags.overrides) {
    const std::string key = key_of(name);
    const bool is_extra = std::find(extra_names().begin(), extra_names().end(), key) != extra_names().end();
    if (is_extra || present.find("--" + key) != nullptr) continue;
    const std::vector<std::string> nearest = nearest_names(key, known);
    problems.add("--override ", name, ": no such option", nearest.empty() ? "" : "; nearest: " + join(nearest, ", "));
  }
}

// Other programs leave neither an order of samples nor a scheme of randomness.
bool is_imported(const store::TrainingState& state) { return state.random_scheme == 0 && state.sample_order.empty(); }

std::string used_text(const OptionDifference& difference) {
  const bool is_length = difference.key == "train_iters" || difference.key == "train_samples";
  if (!difference.use_saved) return "the command line's";
  return is_length ? "the checkpoint's for the decay" : "the checkpoint's";
}

// What the optimizers' tensors are called after their parameters: "exp_avg".
std::set<std::string> stored_states(const store::Manifest& manifest) {
  std::set<std::string> names;
  for (const store::StoredTensor& tensor : manifest.tensors)
    if (!store::is_weight(tensor)) names.insert(tensor.name.substr(tensor.name.rfind('.') + 1));
  names.erase("master");
  return names;
}

// That the checkpoint holds the state of the run's optimizer, whatever --override has let differ.
void check_states(const store::Manifest& manifest, const RunConfig& config, Problems& problems) {
  const spec::OptimizerKind& kind = spec::optimizer_kind(config.optimizer);
  std::set<std::string> wanted;
  for (const spec::StateTensor& state : kind.all_states()) wanted.insert(state.name);
  std::set<std::string> stored = stored_states(manifest);
  // With --override ema a moving average begins at this step, or ends.
  stored.erase(spec::kEma.name), wanted.erase(spec::kEma.name);
  if (stored == wanted) return;
  const std::string where =
      concat("--load ", config.checkpoint.load, ": the checkpoint of step ", manifest.state.step, " holds ");
  const auto list = [](const std::set<std::string>& names) {
    return names.empty() ? "nothing" : join({names.begin(), names.end()}, ", ");
  };
  if (stored.empty())
    problems.add(where,
                 "weights and no optimizer state, as an imported model does. Give --finetune to start at iteration 0 "
                 "with them, or --no-load-optim to continue at that step with a fresh optimizer.");
  else
    problems.add(where, list(stored), " for each parameter, and --optimizer ", kind.name(), " keeps ", list(wanted),
                 ". Give --no-load-optim to continue at that step with a fresh optimizer.");
}

// That no tensor rank has to read a part of a block of moments in fp8, whatever the run itself keeps.
void check_stored_blocks(const store::Manifest& manifest, const RunConfig& config, Problems& problems) {
  const std::vector<spec::ParamSpec> params = model_spec(config).params;
  const auto is_cut = [&](const spec::ParamSpec& param, int64_t tensor_size) {
    return spec::cuts_moment_blocks(param, tensor_size) &&
           std::any_of(manifest.tensors.begin(), manifest.tensors.end(), [&](const store::StoredTensor& tensor) {
             return tensor.dtype == store::DType::kUInt8 && tensor.name.starts_with(param.name + ".");
           });
  };
  const auto find_cut = [&](int64_t tensor_size) {
    return std::find_if(params.begin(), params.end(), [&](const auto& param) { return is_cut(param, tensor_size); });
  };
  const auto cut = find_cut(config.grid.tensor);
  if (cut == params.end()) return;
  int64_t fitting = config.grid.tensor;
  while (fitting > 1 && find_cut(fitting) != params.end()) fitting /= 2;
  problems.add("--load ", config.checkpoint.load, ": the checkpoint of step ", manifest.state.step,
               " holds moments in fp8, of which ", spec::kMomentBlock, " elements of a row share a scale, and ",
               "--tensor-model-parallel-size ", config.grid.tensor, " cuts the rows of ", cut->name,
               " within such a block. Use a tensor-parallel size of ", fitting,
               ", or give --no-load-optim to continue at that step with a fresh optimizer.");
}

}  // namespace

std::vector<OptionDifference> compare_options(const OptionTable& saved, const OptionTable& present,
                                              const ResumeFlags& flags, Problems& problems) {
  if (flags.override_lr_scheduler && flags.use_checkpoint_lr_scheduler)
    problems.add("--override-lr-scheduler and --use-checkpoint-lr-scheduler are mutually exclusive: give one");
  check_override_names(present, flags, problems);
  std::vector<OptionDifference> differences;
  for (const auto& option : present.options()) {
    if (option->effect() != OptionEffect::kUsed || !option->in_recipe())
      continue;  // --override itself is not a setting
    OptionDifference difference{
        .key = option->key(), .saved = value_of(saved, option->key()), .present = value_of(present, option->key())};
    if (difference.saved == difference.present) continue;
    difference.rule = rule_of(*option, saved, present);
    if (flags.finetune && difference.rule != Rule::kRefused) difference.rule = Rule::kFree;
    difference.use_saved = difference.rule == Rule::kLearningRate && flags.use_checkpoint_lr_scheduler;
    check_difference(difference, flags, problems);
    differences.push_back(difference);
  }
  return differences;
}

bool uses_saved_schedule(const std::vector<OptionDifference>& differences) {
  return std::any_of(differences.begin(), differences.end(),
                     [](const auto& difference) { return difference.use_saved; });
}

std::string to_table(const std::vector<OptionDifference>& differences) {
  if (differences.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"option", "checkpoint", "command line", "used"}};
  for (const OptionDifference& difference : differences)
    rows.push_back({difference.key, difference.saved, difference.present, used_text(difference)});
  std::vector<size_t> widths(4, 0);
  for (const auto& row : rows)
    for (size_t column = 0; column < 4; ++column) widths[column] = std::max(widths[column], row[column].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t column = 0; column < 4; ++column)
      line += "  " + row[column] + (column == 3 ? "" : std::string(widths[column] - row[column].size(), ' '));
    text += line + "\n";
  }
  return text;
}

void check_model(const store::ModelFacts& saved, const store::ModelFacts& present, Problems& problems) {
  if (saved.family != present.family)
    problems.add("the checkpoint is of model family '", saved.family, "', this run trains '", present.family,
                 "'; use espalier train ", saved.family);
  if (saved.padded_vocab_size != present.padded_vocab_size)
    problems.add("padded vocabulary: the checkpoint has ", format_count(saved.padded_vocab_size),
                 " rows, this run would have ", format_count(present.padded_vocab_size),
                 ". It was fixed when the model was created: leave out "
                 "--pad-vocab-size-to, or give --pad-vocab-size-to ",
                 saved.padded_vocab_size, ".");
  if (present.vocab_size > saved.padded_vocab_size)
    problems.add("the tokenizer has ", format_count(present.vocab_size), " tokens, the checkpoint's embedding ",
                 format_count(saved.padded_vocab_size), " rows");
}

void check_tokenizer(const store::Manifest& saved, const std::vector<store::ExtraFile>& present,
                     const ResumeFlags& flags, Problems& problems) {
  if (flags.finetune || overridden(flags, "tokenizer")) return;
  const bool has_tokenizer = std::any_of(saved.files.begin(), saved.files.end(), [](const store::StoredFile& file) {
    constexpr std::string_view kFolder = "tokenizer/";
    return file.path.starts_with(kFolder) && text::is_tokenizer_file(file.path.substr(kFolder.size()));
  });
  if (is_imported(saved.state) && !has_tokenizer) return;
  for (const store::ExtraFile& file : present) {
    const store::StoredFile* stored = saved.find_file(file.path);
    const uint64_t found = hash64(file.content);
    if (stored != nullptr && stored->checksum == found) continue;
    problems.add(file.path, ": the checkpoint was trained with ",
                 stored == nullptr ? "none of that name" : "checksum " + hex64(stored->checksum), ", this run has ",
                 hex64(found),
                 ". Another tokenizer changes what is learnt: give the checkpoint's, or --override tokenizer.");
  }
}

void check_optimizer_state(const store::Manifest& saved, const RunConfig& present, Problems& problems) {
  check_states(saved, present, problems);
  check_stored_blocks(saved, present, problems);
}

void check_order(const store::TrainingState& saved, const store::TrainingState& present,
                 const std::vector<std::string>& order_changes, const ResumeFlags& flags, Problems& problems) {
  if (flags.finetune || is_imported(saved)) return;
  // What decides the order has been overridden: then another order was asked for.
  const std::vector<std::string> deciding = {"sample_order", "seed", "seq_length", "split", "dataloader_type"};
  const bool asked_for =
      std::any_of(deciding.begin(), deciding.end(), [&](const std::string& name) { return overridden(flags, name); });
  if (!order_changes.empty() && !asked_for) {
    constexpr size_t kShown = 5;
    std::string lines;
    for (size_t at = 0; at < std::min(kShown, order_changes.size()); ++at) lines += "\n    " + order_changes[at];
    if (order_changes.size() > kShown) lines += concat("\n    and ", order_changes.size() - kShown, " more");
    problems.add("the run would continue with other samples than it began with; some would be seen twice or never:",
                 lines, "\n    Restore the data and the length of the run, or give --override sample_order.");
  }
  if (saved.random_scheme != present.random_scheme && !overridden(flags, "random_scheme"))
    problems.add("the checkpoint was trained with randomness of scheme ", saved.random_scheme,
                 ", this program has scheme ", present.random_scheme,
                 ": dropout masks would change. Use the release that saved it, or give --override random_scheme.");
}

void check_length_stages(const RunConfig& config, int64_t consumed_samples, Problems& problems) {
  const std::vector<int64_t>& ramp = config.training.rampup_batch_size;
  const int64_t batch = config.training.global_batch_size.value();
  const plan::BatchRamp sizes =
      ramp.empty() ? plan::BatchRamp(batch) : plan::BatchRamp(ramp[0], ramp[1], ramp[2], batch);
  int64_t first = consumed_samples;
  for (const data::LengthStage& stage : config.data.length_stages) {
    if (!stage.truncates || stage.first_sample >= config.training.num_samples) continue;
    if (ramp.empty() && first < stage.first_sample) first += (stage.first_sample - first) / batch * batch;
    while (first + sizes.global_batch_size(first) <= stage.first_sample) first += sizes.global_batch_size(first);
    if (first >= stage.first_sample) continue;
    problems.add("--seq-length-stages: sequences are ", stage.length, " tokens long from sample ",
                 format_count(stage.first_sample), " on, in the middle of the batch of samples ", format_count(first),
                 " to ", format_count(first + sizes.global_batch_size(first) - 1),
                 ", and those of a batch have one length. Steps of that batch size do not lead there from the ",
                 format_count(consumed_samples),
                 " samples that the checkpoint's run has read: use a --global-batch-size that divides them, or leave "
                 "out the stages that have not begun.");
    return;
  }
}

store::Beginning beginning_of(const RunConfig& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  const spec::OptimizerKind& kind = spec::optimizer_kind(config.optimizer);
  std::vector<std::string> states;
  for (const spec::StateTensor& state : kind.all_states()) states.push_back(state.name);
  return {.load = checkpoint.load,
          .ckpt_step = checkpoint.ckpt_step,
          .finetune = checkpoint.finetune,
          .no_load_optim = checkpoint.no_load_optim,
          .optimizer = concat(kind.name(), " (", join(states, ", "), ")")};
}

std::vector<std::string> environment_changes(const store::TrainingState& saved, const store::TrainingState& present) {
  if (is_imported(saved))
    return {
        "the checkpoint was imported: whether the samples come in the order of the earlier run cannot be checked, and "
        "dropout masks are drawn differently"};
  std::vector<std::string> lines;
  const auto compare = [&](const char* what, const auto& then, const auto& now) {
    if (then != now) lines.push_back(concat(what, ": ", then, " when saved, now ", now));
  };
  compare("layout", saved.layout, present.layout);
  compare("threads", saved.num_threads, present.num_threads);
  compare("CPU", saved.cpu_type, present.cpu_type);
  compare("libtorch", saved.libtorch_version, present.libtorch_version);
  // Older checkpoints do not say these. Another layout is reported above, and has another way of exchanging where it
  // has another number of processes.
  if (!saved.instruction_set.empty()) compare("instruction set", saved.instruction_set, present.instruction_set);
  if (!saved.transport.empty() && saved.layout == present.layout)
    compare("exchange between processes", saved.transport, present.transport);
  return lines;
}

}  // namespace espalier::config
