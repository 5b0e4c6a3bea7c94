// espalier eval: tasks to requests, answers to results. Between them stands the engine, or somebody else's.
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/pending_file.h"
#include "commands.h"
#include "eval/request_file.h"
#include "eval_model.h"
#include "eval_options.h"
#include "print_json.h"
#include "tokenizer_options.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

void print_data_json(const eval::TaskSet& set, const std::vector<eval::Task>& tasks) {
  for (const eval::Task& task : tasks)
    print_json(
        eval::Json{{"task", task.name},
                   {"task_set", set.name},
                   {"version", task.version},
                   {"data_set", task.data.data_set},
                   {"split", task.data.split},
                   {"documents", task.data.num_documents == 0 ? eval::Json() : eval::Json(task.data.num_documents)},
                   {"fields", task.data.fields}});
}

constexpr const char* kAboutFiles =
    "Each task reads TASK.jsonl, an object a line, or TASK.tsv with the names of the fields on its first line, also\n"
    "with .gz, .zst or .xz after it, in the folder that --data names. Data sets of the Hugging Face hub become such a\n"
    "file in Python: datasets.load_dataset('NAME', 'PART', split='SPLIT').to_json('TASK.jsonl', force_ascii=False)\n";
constexpr const char* kAboutMegatronsFiles = "Each task reads what --data FILE or --data TASK=FILE names.\n";

void list_data(const EvalOptions& options, const std::vector<eval::Task>& tasks) {
  if (options.json) return print_data_json(*options.set, tasks);
  std::string text = options.set == &eval::megatron_set() ? kAboutMegatronsFiles : kAboutFiles;
  for (const eval::Task& task : tasks) {
    const eval::TaskData& data = task.data;
    text += concat("\n", task.name, "\n  data    ", data.data_set, ", ", data.split);
    if (data.num_documents != 0) text += ", " + format_counted(data.num_documents, "document");
    text += data.fields.empty() ? "\n" : concat("\n  fields  ", join(data.fields, ", "), "\n");
  }
  std::fputs(text.c_str(), stdout);
}

eval::PreparedTask read_task(const EvalOptions& options, const eval::Task& task, const std::string& file) {
  if (options.set == &eval::megatron_set()) return eval::prepare_zero_shot(task.name, file, options.zero_shot);
  eval::PreparedTask prepared = eval::prepare(task, eval::read_documents(file, task.data.fields), options.limit);
  const int64_t usual = task.data.num_documents;
  if (usual != 0 && usual != prepared.num_available)
    log_warning("task ", task.name, ": '", file, "' has ", format_counted(prepared.num_available, "document"),
                "; published numbers are of ", format_count(usual));
  return prepared;
}

std::vector<eval::PreparedTask> read_tasks(const EvalOptions& options, const std::vector<eval::Task>& tasks,
                                           const std::vector<std::string>& files) {
  std::vector<eval::PreparedTask> prepared;
  Problems problems;
  ExitCode code = ExitCode::kBadData;
  for (size_t i = 0; i < tasks.size(); ++i) {
    try {
      prepared.push_back(read_task(options, tasks[i], files[i]));
    } catch (const UserError& error) {
      problems.add(error.what());
      code = error.code();
    }
  }
  problems.raise(code);
  return prepared;
}

void write_requests(const EvalOptions& options, const std::vector<eval::PreparedTask>& tasks, const std::string& file) {
  std::unique_ptr<eval::RequestEncoder> encoder;
  if (const text::Tokenizer* tokenizer = options.zero_shot.tokenizer)
    encoder = std::make_unique<eval::RequestEncoder>(*tokenizer, options.set->tokenization, *tokenizer->eod(),
                                                     *options.sequence_length);
  PendingFile pending(file);
  OutputFile output(pending.temporary());
  for (const eval::PreparedTask& task : tasks) {
    const std::string lines = eval::request_lines(task, encoder.get());
    output.write(lines.data(), lines.size());
  }
  output.sync();
  output.close();
  move_into_place({&pending});
  if (encoder != nullptr && encoder->num_cut() > 0)
    log_warning(format_counted(encoder->num_cut(), "request"), " had more ids than --seq-length ",
                *options.sequence_length, " takes: the beginning of the context is left out");
}

void say_what_was_written(const EvalOptions& options, const std::vector<eval::PreparedTask>& tasks) {
  int64_t num_questions = 0;
  for (const eval::PreparedTask& task : tasks) num_questions += static_cast<int64_t>(task.questions.size());
  log_info(options.write_requests, ": the requests of ", format_counted(num_questions, "document"), " of ",
           format_counted(static_cast<int64_t>(tasks.size()), "task"));
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

eval::EvaluationFacts facts_of(const EvalOptions& options) {
  eval::EvaluationFacts facts;
  facts.task_set = options.set->name;
  facts.tokenization = options.set->tokenization;
  facts.model = options.load.empty() ? options.read_results : options.load;
  facts.bootstrap_iters = options.bootstrap_iters;
  facts.limit = options.limit;
  facts.date = now();
  return facts;
}

std::string samples_path(const std::string& results_path, const std::string& task) {
  const fs::path path = results_path;
  return path.parent_path() / concat(path.stem().string(), "_samples_", task, ".jsonl");
}

void print_results(const EvalOptions& options, const std::vector<eval::TaskResult>& results, const std::string& json) {
  if (options.json) {
    print_json(eval::Json::parse(json));
  } else if (options.set == &eval::megatron_set()) {
    for (const eval::TaskResult& result : results) std::fputs(eval::zero_shot_report(result).c_str(), stdout);
  } else {
    std::fputs(eval::results_markdown(results).c_str(), stdout);
  }
}

void read_results(const EvalOptions& options, const std::vector<eval::PreparedTask>& tasks, const std::string& file) {
  const std::vector<std::vector<eval::Answers>> answers = eval::read_answers(file, tasks);
  std::vector<eval::TaskResult> results;
  for (size_t i = 0; i < tasks.size(); ++i)
    results.push_back(eval::score(tasks[i], answers[i], options.bootstrap_iters));
  const std::string json = eval::results_json(results, facts_of(options), options.layout);
  if (options.log_samples)
    for (size_t i = 0; i < tasks.size(); ++i)
      write_file_atomically(samples_path(options.results_path, tasks[i].task.name),
                            eval::sample_lines(results[i], answers[i]));
  if (!options.results_csv.empty()) write_file_atomically(options.results_csv, eval::results_csv(results));
  if (!options.results_path.empty()) write_file_atomically(options.results_path, json);
  print_results(options, results, json);
}

}  // namespace

int eval_main(const std::vector<std::string>& arguments) {
  EvalOptions options;
  Problems problems;
  if (!read_eval_options(arguments, options, problems)) return 0;
  if (options.list_data && options.tasks.empty()) options.tasks = {"all"};
  std::vector<eval::Task> tasks;
  if (options.requests.empty()) tasks = eval::choose_tasks(*options.set, options.tasks, problems);
  if (options.list_data) {
    problems.raise();
    list_data(options, tasks);
    return 0;
  }
  std::vector<std::string> names, files;
  for (const eval::Task& task : tasks) names.push_back(task.name);
  const eval::DataFiles data(options.data, names, problems);
  if (!options.data.empty())
    for (const std::string& name : names) files.push_back(data.find(name, problems));
  EvalModel model;
  if (!options.load.empty() && problems.empty()) {
    model = open_eval_model(options.load, options.ckpt_step);
    if (!options.sequence_length) options.sequence_length = model.sequence_length;
    if (*options.sequence_length > model.sequence_length)
      problems.add("--seq-length ", *options.sequence_length, " is longer than that of the model's training, ",
                   model.sequence_length);
  }
  std::unique_ptr<text::Tokenizer> tokenizer = std::move(model.tokenizer);
  if (!options.tokenizer.type.empty()) tokenizer = load_tokenizer(options.tokenizer, problems);
  if (tokenizer != nullptr && !tokenizer->eod())
    problems.add("the tokenizer has no end-of-document id, which is used where a request has no context");
  problems.raise();
  options.zero_shot.tokenizer = tokenizer.get();
  if (options.sequence_length) options.zero_shot.sequence_length = *options.sequence_length;

  clean_up_when_interrupted();
  if (!options.requests.empty()) {
    model.tokenizer = std::move(tokenizer);
    answer_request_lines(model, options.requests, *options.sequence_length, options.num_threads);
    return 0;
  }
  const std::vector<eval::PreparedTask> prepared = read_tasks(options, tasks, files);
  if (!options.write_requests.empty()) {
    write_requests(options, prepared, options.write_requests);
    say_what_was_written(options, prepared);
  } else if (!options.read_results.empty()) {
    read_results(options, prepared, options.read_results);
  } else {
    const EvalFolder folder;
    const std::string requests = folder.file("requests.jsonl"), answers = folder.file("answers.jsonl");
    write_requests(options, prepared, requests);
    ask_model(model, requests, answers, options.num_threads);
    read_results(options, prepared, answers);
  }
  return 0;
}

}  // namespace espalier
