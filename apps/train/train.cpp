// espalier train: reads and checks everything, then becomes the engine. Nothing is written before all is well.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

#include "apps/become_engine.h"
#include "apps/commands.h"
#include "apps/eval/tasks.h"
#include "apps/family_command.h"
#include "apps/tokenizer/run_tokenizer.h"
#include "apps/train/memory_check.h"
#include "base/format.h"
#include "base/stop_signals.h"
#include "config/deepspeed_config.h"
#include "config/run_options.h"
#include "convert/hf/export.h"
#include "data/data_plan.h"
#include "data/store_metadata.h"
#include "data/token_probe.h"
#include "families/gpt/config.h"
#include "launch/environment.h"
#include "store/run_folder.h"

namespace espalier {
namespace {

// Splits and weights, and that the token files exist.
data::DataPlan check_sources(const config::RunConfig& config, Problems& problems) {
  if (!config.family->reads_token_files) return {};
  const config::DataConfig& from = config.data;
  data::DataSetOptions options = config::data_sets(config);
  options.sequence_length = std::max<int64_t>(1, from.sequence_length);  // a missing one is reported already
  const bool names_data = !from.data_path.empty() || !from.data_file_list.empty() || !from.train_data_path.empty() ||
                          !from.valid_data_path.empty() || !from.test_data_path.empty() || from.weighted_splits ||
                          !from.valid_weighted_split_paths.empty() || !from.valid_weighted_split_paths_path.empty() ||
                          !from.test_weighted_split_paths.empty() || !from.test_weighted_split_paths_path.empty();
  if (!names_data && config.validate_only) return {};  // a recipe alone has no data
  return data::plan_data(options, problems);
}

// The tokenizer itself, and that the embedding covers it. What files are missing is reported already; `of_data`:
// damaged.
std::unique_ptr<text::Tokenizer> check_vocabulary(config::RunConfig& config, Problems& problems, Problems& of_data) {
  try {
    std::unique_ptr<text::Tokenizer> tokenizer = load_run_tokenizer(config.tokenizer);
    if (tokenizer != nullptr) config::set_vocabulary(config, tokenizer->vocab_size());
    return tokenizer;
  } catch (const UserError& error) {
    (error.code() == ExitCode::kBadData ? of_data : problems).add(error.what());
    return nullptr;
  }
}

// What the token files are: readable, whole by their headers and sizes, of this tokenizer (those that record it), with
// ids of its vocabulary at the places that are looked at. Files that do not exist are reported already.
Problems check_data(const config::RunConfig& config, const std::vector<std::string>& prefixes,
                    const text::Tokenizer* tokenizer) {
  Problems problems;
  const bool allow_other = config.data.allow_other_tokenizer;
  if (tokenizer != nullptr)
    for (const std::string& line : data::describe_other_tokenizers(prefixes, *tokenizer)) {
      if (allow_other)
        log_warning(line);
      else
        problems.add(line, ". Give the tokenizer that made the data, or --allow-other-tokenizer.");
    }
  // Of another tokenizer it is no news that ids do not fit.
  const bool is_of_other = !problems.empty();
  const int64_t num_ids = is_of_other ? 0 : allow_other ? config.vocabulary.padded_size : config.vocabulary.size;
  for (const std::string& prefix : std::set<std::string>(prefixes.begin(), prefixes.end())) {
    if (!data::find_token_files(prefix)) continue;
    try {
      const data::TokenStore store(prefix);
      const std::optional<std::string> problem =
          num_ids > 0 ? data::probe_ids(store, {0, store.num_sequences()}, num_ids) : std::nullopt;
      if (problem) problems.add(*problem);
    } catch (const UserError& error) {
      problems.add(error.what());
    }
  }
  return problems;
}

// That --eval-tasks can be asked when the first checkpoint is saved.
void check_eval_tasks(const config::RunConfig& config, Problems& problems) {
  const config::DataConfig& data = config.data;
  if (data.eval_tasks.empty()) {
    if (!data.eval_tasks_data.empty()) problems.add("--eval-tasks-data belongs to --eval-tasks, which is not given");
    return;
  }
  if (config.family != &families::gpt_family())
    problems.add("--eval-tasks evaluates models that continue text: train gpt, not train ", config.family->name);
  if (config.checkpoint.save.empty()) problems.add("--eval-tasks evaluates saved checkpoints: give --save");
  if (data.eval_tasks_data.empty())
    problems.add("--eval-tasks needs --eval-tasks-data: the folder of the tasks' files");
  EvalOptions options;
  options.tasks = task_words(data.eval_tasks);
  options.data = data.eval_tasks_data;
  options.task_files = data.eval_tasks_files;
  std::vector<EvalTask> tasks = choose_eval_tasks(options, problems);
  find_eval_files(options, tasks, problems);
}

// That --save-hf can write the model.
void check_hf_folders(const config::RunConfig& config, Problems& problems) {
  if (!config.checkpoint.save_hf || !problems.empty()) return;
  try {
    convert::check_hf_export(config);
  } catch (const UserError& error) {
    problems.add("--save-hf: ", error.what());
  }
}

// That a run which begins with another model's weights finds them.
void check_pretrained(const config::RunConfig& config, Problems& problems) {
  const config::CheckpointConfig& from = config.checkpoint;
  const auto has_checkpoint = [](const std::string& folder) {
    std::error_code error;
    return !folder.empty() && std::filesystem::is_directory(folder, error) &&
           store::find_checkpoint(folder, std::nullopt, "").has_value();
  };
  if (from.pretrained.empty() || has_checkpoint(from.load) || has_checkpoint(from.pretrained)) return;
  problems.add(config.family->pretrained.option, " ", from.pretrained,
               " holds no checkpoint; give the run folder of `espalier train bert`, or what `espalier checkpoint "
               "import-hf` or `import-megatron` made of another program's");
}

// The resolved options on stdout, what they amount to on stderr.
void print_validated(config::RunConfig& config, const OptionTable& table) {
  std::fputs(table.to_toml().c_str(), stdout);
  const config::TrainingConfig& training = config.training;
  const std::string without = concat(format_count(config::model_spec(config).num_parameters_without_embeddings()),
                                     " parameters without embeddings");
  if (config.vocabulary.size == 0 && config.tokenizer.pad_vocab_size_to)
    config::set_vocabulary(config, *config.tokenizer.pad_vocab_size_to);
  const std::string model = config.vocabulary.size == 0
                                ? without
                                : concat(format_count(config::model_spec(config).num_parameters()), " parameters");
  const int64_t tokens = training.num_samples * config.data.sequence_length;
  log_info("valid: ", model, ", ", plan::to_string(training.precision), "; ", format_count(training.scheduled_steps),
           " steps, ", format_count(training.num_samples), " samples, ", format_count(tokens), " tokens; layout ",
           spec::to_string(config.grid));
  if (training.num_steps < training.scheduled_steps)
    log_info("--train-tokens ends the run after ", format_count(training.num_steps), " of ",
             format_count(training.scheduled_steps), " steps");
  // Under espalier launch the first rank says it.
  const bool is_check_of_launch = launch::detect_environment().kind == launch::LaunchKind::kEspalier;
  if (!config.parallel.zero_reason.empty() && !is_check_of_launch) log_info(config.parallel.zero_reason);
}

// docs/megatron-arguments.md
int print_markdown(const config::Family& family) {
  const config::RunOptions options(family);
  std::string text = concat(
      "# Arguments of Megatron and DeepSpeed\n\nWhat happens to each option of a Megatron-DeepSpeed launch line in "
      "`espalier train ",
      family.name,
      "`: used, without effect\n(reported once, with the reason), or not supported (refused, with what to use "
      "instead). "
      "All "
      "options of BigScience's and of\nArgonne's Megatron-DeepSpeed are here, all of NVIDIA's Megatron-LM, and our "
      "own. "
      "[options.md](options.md) says where a\nmeaning differs. Generated: `espalier train ",
      family.name, " --help-markdown > docs/megatron-arguments.md`.\n");
  text += options.table.help_markdown();
  text +=
      "\n## DeepSpeed's JSON\n\nThe keys of the file that `--deepspeed_config` names, which correspond to options. An "
      "option that is not given takes the key's\nvalue; where both are given and differ, the run stops and shows both; "
      "for the loss scale the file's value applies, with a\nwarning. `\"auto\"` and `null` say nothing. Any other key "
      "is\nrefused by name.\n\n";
  text += config::deepspeed_keys_markdown();
  std::fputs(text.c_str(), stdout);
  return 0;
}

// With --validate-only the run may be meant for another machine, unless espalier launch asks before it starts ranks
// here.
void check_memory(const std::vector<std::string>& arguments, const config::RunConfig& config,
                  const launch::RankEnvironment& place) {
  if (config.allow_memory_overcommit) return;
  const std::string lack = lack_of_memory({arguments.begin() + 1, arguments.end()}, config, place);
  if (lack.empty()) return;
  if (config.validate_only && place.kind != launch::LaunchKind::kEspalier) return log_warning(lack);
  throw UserError(lack, ExitCode::kUsage);
}

// Becomes the engine, unless a signal has come in the meantime; one that comes later finds the engine.
int start_engine(const std::vector<std::string>& arguments, const StopSignals& signals) {
  hold_stop_signals();
  if (const auto signal = signals.received()) {
    log_info("received ", *signal, " before the run began: nothing was started");
    return 0;
  }
  become_engine("train", arguments);
}

// Documents that are both learnt and held out: the loss on them says little.
void warn_of_shared_documents(const data::DataPlan& plan) {
  const auto compare = [&plan](const data::DataGroup& group, const char* set) {
    for (const data::DataSource& held : group.sources)
      for (const data::DataSource& learnt : plan.train.sources) {
        if (held.prefix != learnt.prefix || !held.range || !learnt.range) continue;
        const double begin = std::max(held.range->begin, learnt.range->begin),
                     end = std::min(held.range->end, learnt.range->end);
        if (begin < end)
          warn_once(concat("--", set, "-weighted-split-paths: '", group.name, "' and the training set share ",
                           format_shortest(begin), ":", format_shortest(end), " of '", held.prefix,
                           "': its loss is of documents that are learnt"));
      }
  };
  for (const data::DataGroup& group : plan.valid) compare(group, "valid");
  for (const data::DataGroup& group : plan.test) compare(group, "test");
}

int train_family(const config::Family& family, const std::vector<std::string>& arguments) {
  std::optional<StopSignals> signals(std::in_place);
  set_awaited("the checks of options, data and tokenizer, before the run begins");
  config::RunConfig config;
  const launch::RankEnvironment place = launch::detect_environment();
  if (place.kind != launch::LaunchKind::kSingle) config.num_ranks = place.world_size;
  config.stays_on_one_machine = place.one_machine && !place.machines_may_change;
  OptionTable table(concat("espalier train ", family.name), family.summary);
  if (arguments.size() == 2 && arguments[1] == "--help-markdown") return print_markdown(family);
  table.say_notes(place.rank == 0);
  acknowledge_signals(place.rank == 0);
  Problems problems;
  if (!config::read_run(family, {arguments.begin() + 1, arguments.end()}, config, table, problems)) return 0;
  if (config.validate_only) signals.reset();  // a check just ends
  const data::DataPlan plan = check_sources(config, problems);
  Problems of_data;
  const std::unique_ptr<text::Tokenizer> tokenizer = check_vocabulary(config, problems, of_data);
  check_eval_tasks(config, problems);
  check_pretrained(config, problems);
  check_hf_folders(config, problems);
  if (family.check_data != nullptr) family.check_data(config, tokenizer.get(), plan, problems);
  if (table.says_notes()) warn_of_shared_documents(plan);
  const Problems of_files = check_data(config, plan.token_files(), tokenizer.get());
  for (const std::string& message : of_files.messages()) of_data.add(message);
  if (problems.empty()) of_data.raise(ExitCode::kBadData);
  for (const std::string& message : of_data.messages()) problems.add(message);
  problems.raise();
  check_memory(arguments, config, place);
  if (!config.validate_only && !place.doubt.empty()) log_warning(place.doubt);
  if (!config.validate_only) return start_engine(arguments, *signals);
  print_validated(config, table);
  return 0;
}

}  // namespace

int train_main(const std::vector<std::string>& arguments) {
  return run_with_family("train", "[options]", arguments, train_family);
}

}  // namespace espalier
