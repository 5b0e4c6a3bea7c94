// espalier launch: reads torchrun's flags, has the ranks' command checked once, and starts the ranks.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/become_engine.h"
#include "apps/commands.h"
#include "apps/eval/options.h"
#include "apps/launch/file_thread.h"
#include "apps/launch/launched_run.h"
#include "apps/launch/page.h"
#include "apps/launch/run_alerts.h"
#include "apps/options/generate_options.h"
#include "apps/options/serve_options.h"
#include "apps/train/check_training.h"
#include "base/format.h"
#include "base/log.h"
#include "families/registry.h"
#include "launch/environment.h"
#include "launch/launcher.h"
#include "report/appended_file.h"
#include "report/events.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

// What `words` (a command of ours) runs on each rank: training goes to the engine directly, as it was checked before.
launch::RankProgram our_program(const Words& words) {
  launch::RankProgram program;
  const bool trains = words.size() > 1 && words[0] == "train";
  program.command = {path_beside_this_program(trains ? "espalier-engine" : "espalier")};
  program.command.insert(program.command.end(), words.begin(), words.end());
  program.name = trains ? concat("espalier train ", words[1]) : "espalier " + words[0];
  return program;
}

// The failures of one start, for whoever looks for a machine to leave out.
void record_crash(const launch::Incident& incident) {
  nlohmann::ordered_json crash = {{"failures", nlohmann::json::parse(launch::to_json(incident.failures))},
                                  {"starts_again", incident.starts_again}};
  const auto variables = launch::process_variables();
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_NODELIST", "PBS_JOBID"})
    if (const auto found = variables.find(name); found != variables.end()) crash[name] = found->second;
  try {
    report::AppendedFile(std::filesystem::path(incident.run_folder) / "crashes.jsonl")
        .append(crash.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } catch (const UserError& error) {
    log_warning(error.what());
  }
}

// Whether the run can be divided over so many ranks; nothing if the check has been killed.
std::optional<bool> fits_ranks(const Words& words, int64_t num_ranks, int64_t ranks_of_node) {
  constexpr int kMostTries = 3;
  for (int attempt = 0; attempt < kMostTries; ++attempt) {
    const int code = check_training(
        words, {.ranks_of_node = ranks_of_node, .num_ranks = num_ranks, .runs_here = false, .is_silent = true});
    if (code < 128) return code == 0;
  }
  return std::nullopt;
}

// Whether the run can be divided over any number of machines from --nnodes MIN:MAX.
bool fits_some_machines(const Words& words, const launch::LaunchOptions& options) {
  for (int64_t count = options.max_nodes; count >= options.min_nodes; --count)
    if (fits_ranks(words, count * options.num_local_ranks, options.num_local_ranks).value_or(true)) return true;
  return false;
}

// The same batch on whatever machines there are.
void let_machines_change(const Words& words, const launch::LaunchOptions& options, launch::RankProgram& program) {
  if (options.min_nodes == options.max_nodes) return;
  program.goes_on_after_stop = goes_on_where_it_stopped(words);
  program.fits = [words, ranks_of_node = options.num_local_ranks,
                  known = std::make_shared<std::map<int64_t, bool>>()](int64_t num_ranks) {
    if (const auto entry = known->find(num_ranks); entry != known->end()) return entry->second;
    const std::optional<bool> fits = fits_ranks(words, num_ranks, ranks_of_node);
    if (fits) known->emplace(num_ranks, *fits);
    return fits.value_or(true);  // no machine is left out for that: the ranks refuse what cannot be divided
  };
}

const char* event_of(launch::Incident::Kind kind) {
  return kind == launch::Incident::Kind::kFailure ? "failure" : "hang";
}

launch::RankProgram program_of(const launch::LaunchOptions& options) {
  if (options.runs_other_program) return {options.program, options.program.front(), false};
  const Words words = canonical_words(options.program);
  if (words.empty() || !runs_as_ranks(words[0]))
    throw UserError(concat("cannot start ", options.program.front(),
                           " as ranks: it is not a command of Espalier (train gpt ..., pretrain_gpt.py ...). Any other "
                           "program is started with --no-python."),
                    ExitCode::kUsage);
  return our_program(words);
}

// --tensor-model-parallel-size of the commands that run one model over all ranks; nothing for others, and where they
// print their help.
std::optional<int64_t> tensor_ranks_of(const Words& words) {
  const Words arguments(words.begin() + 1, words.end());
  if (words[0] == "generate") {
    GenerateOptions options;
    if (read_generate_options(arguments, options)) return options.tensor_ranks;
  } else if (words[0] == "serve") {
    ServeOptions options;
    if (read_serve_options(arguments, options)) return options.tensor_ranks;
  } else if (words[0] == "eval") {
    EvalOptions options;
    Problems problems;
    if (read_eval_options(arguments, options, problems)) {
      problems.raise();
      return options.tensor_ranks;
    }
  }
  return std::nullopt;
}

// Ranks that nobody divides a model over would all do the same.
void check_tensor_ranks(const launch::LaunchOptions& options) {
  const Words words = canonical_words(options.program);
  const int64_t num_ranks = options.max_nodes * options.num_local_ranks;
  const std::optional<int64_t> wanted = tensor_ranks_of(words);
  if (!wanted || (*wanted == num_ranks && options.min_nodes == options.max_nodes)) return;
  throw UserError(concat("espalier ", words[0], " runs one model over all ranks, which are ", num_ranks,
                         options.min_nodes == options.max_nodes ? "" : " or fewer (--nnodes MIN:MAX)",
                         ", and --tensor-model-parallel-size is ", *wanted,
                         ": give the same number to both, and a fixed number of machines"),
                  ExitCode::kUsage);
}

// Help, and whatever else a command answers instead of doing its work.
bool asks_for_answer(const Words& words) {
  for (const std::string& word : words) {
    if (word == "--") return false;
    const std::string name = word.substr(0, word.find('='));
    for (const char* answer : {"-h", "--help", "--help-all", "--help_all", "--help-man", "--help-markdown"})
      if (name == answer) return true;
  }
  return false;
}

// Commands whose processes divide the work among themselves; each of several others would do all of it again.
bool takes_part_as_rank(const Words& words) {
  const std::string& command = words[0];
  if (command == "train") return words.size() > 1 && families::find_family(words[1]) != nullptr;
  if (command == "doctor") return std::find(words.begin(), words.end(), "--nodes") != words.end();
  for (const char* other : {"generate", "serve", "eval", "curate"})
    if (command == other) return true;
  return false;
}

// What runs here in one process, also under Megatron's line with torch.distributed.launch: no ranks are started.
std::optional<Words> words_of_one_process(const launch::LaunchOptions& options) {
  if (options.runs_other_program) return std::nullopt;
  const Words words = canonical_words(options.program);
  if (words.empty() || !runs_as_ranks(words[0])) return std::nullopt;
  if (asks_for_answer(words)) return words;
  if (takes_part_as_rank(words)) return std::nullopt;
  if (options.max_nodes > 1)
    throw UserError(words[0] == "index"
                        ? std::string("espalier index runs on one machine; on several, embed a part of the passages "
                                      "on each and join the shards with espalier index build")
                        : concat("espalier ", words[0], " runs in one process: leave espalier launch --nnodes out"),
                    ExitCode::kUsage);
  if (options.num_local_ranks > 1) log_info("espalier ", words[0], " runs in one process: no ranks are started");
  return words;
}

}  // namespace

int launch_main(const Words& arguments) {
  const auto options = launch::read_launch_options(arguments, launch::process_variables());
  if (!options) return 0;
  choose_how_threads_wait(options->num_local_ranks);
  if (const auto words = words_of_one_process(*options)) return run_subcommand("espalier", commands(), *words);
  launch::RankProgram program = program_of(*options);
  if (!options->runs_other_program) check_tensor_ranks(*options);
  if (program.command.front().ends_with("espalier-engine")) {
    const Words words = canonical_words(options->program);
    const bool only_checks = asks_for_validation(words);
    const TrainingCheck check{
        .num_nodes = options->max_nodes, .ranks_of_node = options->num_local_ranks, .shows_options = only_checks};
    if (only_checks || options->min_nodes == options->max_nodes || !fits_some_machines(words, *options)) {
      const int code = check_training(words, check);
      if (code != 0 || only_checks) return code;
    }
    let_machines_change(words, *options, program);
  }
  std::optional<LaunchedPage> page;
  if (options->page) page.emplace(*options->page, canonical_words(options->program));
  std::optional<RunAlerts> alerts;
  if (!options->alert_command.empty())
    alerts.emplace(options->alert_command, save_folder_of(canonical_words(options->program), "--alert-command"));
  std::optional<EndWatch> end;
  if (program.command.front().ends_with("espalier-engine")) {
    end.emplace(end_rules_of(canonical_words(options->program)));
    program.reason_to_end = [&end](double seconds) { return end->reason(seconds); };
  }
  std::optional<FileThread> late_events;
  if (!options->runs_other_program) {
    late_events.emplace([] { report::write_late_events(report::Recorder::kOther); });
    program.on_incident = [&](const launch::Incident& incident) {
      if (!incident.run_folder.empty())
        report::record_event(incident.run_folder, event_of(incident.kind), -1, incident.what);
      if (!incident.run_folder.empty() && !incident.failures.empty()) record_crash(incident);
      if (alerts) alerts->tell(incident);
    };
  }
  return launch::run_launcher(*options, program);
}

}  // namespace espalier
