#include "eval_options.h"

#include <algorithm>

#include "base/format.h"
#include "tokenizer_options.h"

namespace espalier {
namespace {

enum class SetChoice { kByTasks, kBloom2022, kMegatron };
enum class DetokenizerChoice { kByPath, kWikitext, kPennTreebank, kNone };
enum class LayoutChoice { kOfSet, kLmEval2022, kLmEval04 };

struct Choices {
  std::vector<std::string> tasks;
  SetChoice set = SetChoice::kByTasks;
  DetokenizerChoice detokenizer = DetokenizerChoice::kByPath;
  LayoutChoice layout = LayoutChoice::kOfSet;
};

void add_task_rows(OptionTable& table, EvalOptions& options, Choices& choices) {
  table.group("tasks");
  table
      .add("--tasks", choices.tasks,
           "tasks, with blanks or commas between them: NAME or SET:NAME; all and SET:all for every one of a set")
      .alias("--task")
      .alias("--task-list")
      .value_name("TASK");
  table.add_choice(
      "--task-set", choices.set,
      {{"infer", SetChoice::kByTasks}, {"bloom-2022", SetChoice::kBloom2022}, {"megatron", SetChoice::kMegatron}},
      "whose prompts and scores, for names without a set: BLOOM's 28 tasks as lm_eval of 2022 had them, or WIKITEXT103 "
      "and LAMBADA of Megatron's tasks/main.py; unless given, the first of these that has the name");
  table.add("--data", options.data, "the folder of the tasks' files, the file of one task, or TASK=FILE")
      .alias("--valid-data")
      .value_name("PATH");
  table.add("--list-data", options.list_data, "show what file each task wants, with which fields");
  table.add("--limit", options.limit, "only the first N documents of each task").minimum(1);
}

void add_model_rows(OptionTable& table, EvalOptions& options) {
  table.group("model");
  table.add("--load", options.load, "run folder or step folder of the model that is asked").value_name("DIR");
  table.add("--ckpt-step", options.ckpt_step, "step of the run folder; the newest complete one unless given");
  table.add("--num-threads", options.num_threads, "threads; the usable cores unless given").minimum(1);
  table
      .add("--requests", options.requests,
           "instead of tasks: score lines {\"context\", \"continuation\"}, and print {\"loglikelihood\", "
           "\"is_greedy\", \"tokens\"} for each")
      .value_name("FILE");
}

void add_scoring_rows(OptionTable& table, EvalOptions& options) {
  table.group("scoring by another engine");
  table.add("--write-requests", options.write_requests, "write what the tasks ask, a JSON object a line")
      .value_name("FILE");
  table
      .add("--read-results", options.read_results,
           "score these answers: lines with task, doc_id and index of a request, log_likelihood, is_greedy")
      .value_name("FILE");
}

void add_result_rows(OptionTable& table, EvalOptions& options, Choices& choices) {
  table.group("results");
  table.add("--results-path", options.results_path, "write the results as JSON")
      .alias("--output-path")
      .alias("--output")
      .value_name("FILE");
  table.add_choice("--results-layout", choices.layout,
                   {{"of-the-set", LayoutChoice::kOfSet},
                    {"lm-eval-2022", LayoutChoice::kLmEval2022},
                    {"lm-eval-0.4", LayoutChoice::kLmEval04}},
                   "of that file");
  table.add("--results-csv", options.results_csv, "write task, metric, value, error and version").value_name("FILE");
  table.add(
      "--log-samples", options.log_samples,
      "write each document with its requests and answers: PATH_samples_TASK.jsonl beside --results-path PATH.json");
  table
      .add("--bootstrap-iters", options.bootstrap_iters,
           "resamples for the standard error of f1 and perplexity; 0 leaves it out")
      .minimum(0)
      .maximum(10'000'000);
  table.add("--json", options.json, "print the results, or the list of --list-data, as JSON");
}

void add_tokenizer_rows(OptionTable& table, EvalOptions& options, Choices& choices) {
  table.group("ids (of WIKITEXT103 and LAMBADA, and to write them with other requests)");
  add_tokenizer_options(table, options.tokenizer);
  table.add("--seq-length", options.sequence_length, "longest sequence that the model takes").minimum(1);
  table
      .add("--overlapping-eval", options.zero_shot.overlapping_eval,
           "by how many ids a window of WIKITEXT103 is after the one before; --seq-length: no overlap")
      .minimum(1);
  table.add_choice("--detokenizer", choices.detokenizer,
                   {{"by-path", DetokenizerChoice::kByPath},
                    {"wikitext", DetokenizerChoice::kWikitext},
                    {"ptb", DetokenizerChoice::kPennTreebank},
                    {"none", DetokenizerChoice::kNone}},
                   "of WIKITEXT103; by what the path of the file contains unless given");
  table.add("--strict-lambada", options.zero_shot.strict_lambada,
            "LAMBADA predicts the whole last word, not its last id");
}

const eval::TaskSet* set_of(SetChoice choice) {
  switch (choice) {
    case SetChoice::kByTasks: break;
    case SetChoice::kBloom2022: return &eval::bloom_2022_set();
    case SetChoice::kMegatron: return &eval::megatron_set();
  }
  return nullptr;
}

void apply(const Choices& choices, EvalOptions& options, Problems& problems) {
  std::vector<std::string> words = task_words(choices.tasks);
  if (words.empty() && options.list_data) words = {"all"};
  options.tasks = eval::choose_tasks(words, set_of(choices.set), problems);
  switch (choices.detokenizer) {
    case DetokenizerChoice::kByPath: break;
    case DetokenizerChoice::kWikitext: options.zero_shot.detokenizer = eval::Detokenizer::kWikitext; break;
    case DetokenizerChoice::kPennTreebank: options.zero_shot.detokenizer = eval::Detokenizer::kPennTreebank; break;
    case DetokenizerChoice::kNone: options.zero_shot.detokenizer = eval::Detokenizer::kNone; break;
  }
  switch (choices.layout) {
    case LayoutChoice::kOfSet:
      if (!options.tasks.empty()) options.layout = options.tasks.front().set->layout;
      break;
    case LayoutChoice::kLmEval2022: options.layout = eval::ResultLayout::kLmEval2022; break;
    case LayoutChoice::kLmEval04: options.layout = eval::ResultLayout::kLmEval04; break;
  }
}

void check_use(const EvalOptions& options, bool names_tasks, Problems& problems) {
  const bool writes = !options.write_requests.empty(), reads = !options.read_results.empty();
  if (options.list_data) {
    if (writes || reads) problems.add("--list-data only lists: leave out --write-requests and --read-results");
    return;
  }
  const bool asks = !options.load.empty();
  if (options.ckpt_step && !asks) problems.add("--ckpt-step needs --load");
  if (!options.requests.empty()) {
    if (!asks) problems.add("--requests needs --load: the model that scores them");
    if (names_tasks || writes || reads)
      problems.add("--requests is scored by itself: leave out --tasks, --write-requests and --read-results");
    return;
  }
  if (!names_tasks) problems.add("--tasks is required; 'espalier eval --list-data' shows them");
  if (options.data.empty()) problems.add("--data is required: the folder of the tasks' files");
  if (asks + writes + reads > 1)
    problems.add("--load, --write-requests and --read-results: one at a time");
  else if (asks + writes + reads == 0)
    problems.add(
        "--load DIR is required: the model to ask; or, for another engine, --write-requests FILE and then "
        "--read-results FILE");
  if (!reads && !asks && (!options.results_path.empty() || !options.results_csv.empty()))
    problems.add(options.results_path.empty() ? "--results-csv" : "--results-path",
                 ": there are results only with --load or --read-results");
  if (options.log_samples && options.results_path.empty())
    problems.add("--log-samples needs --results-path, beside which it writes");
  if (options.bootstrap_iters == 1)
    problems.add("--bootstrap-iters 1: a deviation needs two resamples; use 0 or at least 2");
}

void check_ids(const EvalOptions& options, Problems& problems) {
  const eval::TaskSet& megatron = eval::megatron_set();
  const bool has_megatrons = std::any_of(options.tasks.begin(), options.tasks.end(),
                                         [&](const eval::ChosenTask&task) { return task.set == &megatron; }),
             encodes = !options.tokenizer.type.empty();
  if (options.list_data) return;
  if (has_megatrons && options.limit) problems.add("--limit: ", megatron.name, "'s tasks are read whole");
  if (!options.load.empty()) {
    if (encodes) problems.add("--tokenizer-type: the model of --load has its own tokenizer");
    return;
  }
  if (has_megatrons && !encodes)
    problems.add("--tokenizer-type is required: ", megatron.name, "'s tasks are made of ids");
  if ((has_megatrons || encodes) && !options.sequence_length)
    problems.add("--seq-length is required where requests become ids");
  if (has_megatrons && options.sequence_length && options.zero_shot.overlapping_eval > *options.sequence_length)
    problems.add("--overlapping-eval ", options.zero_shot.overlapping_eval, " is more than --seq-length ",
                 *options.sequence_length, ": ids between the windows would count nowhere");
}

}  // namespace

std::vector<std::string> task_words(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words)
    for (const std::string& name : split(word, ','))
      if (!name.empty()) names.push_back(name);
  return names;
}

std::vector<std::string> find_task_files(const std::vector<eval::ChosenTask>& tasks,
                                         const std::vector<std::string>& data, Problems& problems) {
  std::vector<std::string> names, files;
  for (const eval::ChosenTask& chosen : tasks) names.push_back(chosen.task.name);
  const eval::DataFiles found(data, names, problems);
  if (data.empty()) return files;
  for (const auto& [set, task] : tasks) {
    // A name that two sets have is SET:NAME here, and its file still NAME.jsonl.
    std::vector<std::string> others = task.data.files;
    if (const size_t colon = task.name.find(':'); colon != std::string::npos)
      others.push_back(task.name.substr(colon + 1) + ".jsonl");
    files.push_back(found.find(task.name, problems, others));
  }
  return files;
}

bool read_eval_options(const std::vector<std::string>& arguments, EvalOptions& options, Problems& problems) {
  Choices choices;
  OptionTable table("espalier eval",
                    "Asks a model the tasks of an evaluation; or writes the requests for another engine, and scores "
                    "its answers.");
  add_task_rows(table, options, choices);
  add_model_rows(table, options);
  add_scoring_rows(table, options);
  add_result_rows(table, options, choices);
  add_tokenizer_rows(table, options, choices);
  table.stray_words_mean("--tasks");
  table.known_elsewhere({"--num-fewshot"}, "the tasks are asked without examples");
  if (!table.parse(arguments, problems)) return false;
  apply(choices, options, problems);
  check_use(options, !choices.tasks.empty(), problems);
  check_ids(options, problems);
  return true;
}

}  // namespace espalier
