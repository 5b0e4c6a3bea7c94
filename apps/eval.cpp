// espalier eval: tasks to requests, answers to results. Between them stands the engine, or somebody else's.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/pending_file.h"
#include "commands.h"
#include "eval/request_file.h"
#include "eval/results.h"
#include "eval_model.h"
#include "eval_options.h"
#include "print_json.h"
#include "tokenizer_options.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

void print_data_json(const std::vector<eval::ChosenTask>& tasks) {
  for (const auto& [set, task] : tasks)
    print_json(
        eval::Json{{"task", task.name},
                   {"task_set", set->name},
                   {"version", task.version},
                   {"data_set", task.data.data_set},
                   {"split", task.data.split},
                   {"documents", task.data.num_documents == 0 ? eval::Json() : eval::Json(task.data.num_documents)},
                   {"fields", task.data.fields},
                   {"files", task.data.files}});
}

constexpr const char* kAboutFiles =
    "Each task reads TASK.jsonl, an object a line, or TASK.tsv with the names of the fields on its first line, also\n"
    "with .gz, .zst or .xz after it, in the folder that --data names. Data sets of the Hugging Face hub become such a\n"
    "file in Python: datasets.load_dataset('NAME', 'PART', split='SPLIT').to_json('TASK.jsonl', force_ascii=False)\n";

void list_data(const EvalOptions& options) {
  if (options.json) return print_data_json(options.tasks);
  std::string text = kAboutFiles;
  for (const eval::ChosenTask& chosen : options.tasks) {
    const eval::TaskData& data = chosen.task.data;
    text += concat("\n", chosen.task.name, "\n  data    ", data.data_set, ", ", data.split);
    if (data.num_documents != 0) text += ", " + format_counted(data.num_documents, "document");
    text += data.fields.empty() ? "\n" : concat("\n  fields  ", join(data.fields, ", "), "\n");
    if (!data.files.empty())
      text += concat("  files   ", join(data.files, ", "), ", or --data ", chosen.task.name, "=FILE\n");
  }
  std::fputs(text.c_str(), stdout);
}

eval::PreparedTask read_task(const EvalOptions& options, const eval::ChosenTask& chosen, const std::string& file) {
  const eval::Task& task = chosen.task;
  if (chosen.set == &eval::megatron_set()) return eval::prepare_zero_shot(task, file, options.zero_shot);
  eval::PreparedTask prepared = eval::prepare(task, eval::read_documents(file, task.data.fields), options.limit);
  const int64_t usual = task.data.num_documents;
  if (usual != 0 && usual != prepared.num_available)
    log_warning("task ", task.name, ": '", file, "' has ", format_counted(prepared.num_available, "document"),
                "; published numbers are of ", format_count(usual));
  return prepared;
}

std::vector<eval::PreparedTask> read_tasks(const EvalOptions& options, const std::vector<std::string>& files) {
  std::vector<eval::PreparedTask> prepared;
  Problems problems;
  ExitCode code = ExitCode::kBadData;
  for (size_t i = 0; i < options.tasks.size(); ++i) {
    try {
      prepared.push_back(read_task(options, options.tasks[i], files[i]));
    } catch (const UserError& error) {
      problems.add(error.what());
      code = error.code();
    }
  }
  problems.raise(code);
  return prepared;
}

// One for each way in which context and continuation become ids; none where there is no tokenizer.
class RequestEncoders {
 public:
  explicit RequestEncoders(const EvalOptions& options) : options_(options) {}

  eval::RequestEncoder* of(eval::Tokenization tokenization) {
    const text::Tokenizer* tokenizer = options_.zero_shot.tokenizer;
    if (tokenizer == nullptr) return nullptr;
    std::unique_ptr<eval::RequestEncoder>& encoder = encoders_[tokenization];
    if (encoder == nullptr)
      encoder = std::make_unique<eval::RequestEncoder>(*tokenizer, tokenization, *tokenizer->eod(),
                                                       *options_.sequence_length);
    return encoder.get();
  }
  int64_t num_cut() const {
    int64_t count = 0;
    for (const auto& [tokenization, encoder] : encoders_) count += encoder->num_cut();
    return count;
  }

 private:
  const EvalOptions& options_;
  std::map<eval::Tokenization, std::unique_ptr<eval::RequestEncoder>> encoders_;
};

void write_requests(const EvalOptions& options, const std::vector<eval::PreparedTask>& tasks, const std::string& file) {
  RequestEncoders encoders(options);
  PendingFile pending(file);
  OutputFile output(pending.temporary());
  for (size_t i = 0; i < tasks.size(); ++i) {
    const std::string lines = eval::request_lines(tasks[i], encoders.of(options.tasks[i].set->tokenization));
    output.write(lines.data(), lines.size());
  }
  output.sync();
  output.close();
  move_into_place({&pending});
  if (encoders.num_cut() > 0)
    log_warning(format_counted(encoders.num_cut(), "request"), " had more ids than --seq-length ",
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
  for (const eval::ChosenTask& task : options.tasks) facts.sets.push_back(task.set);
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
  if (options.json) return print_json(eval::Json::parse(json));
  std::vector<eval::TaskResult> of_harness;
  for (size_t i = 0; i < results.size(); ++i) {
    if (options.tasks[i].set == &eval::megatron_set())
      std::fputs(eval::zero_shot_report(results[i]).c_str(), stdout);
    else
      of_harness.push_back(results[i]);
  }
  if (!of_harness.empty()) std::fputs(eval::results_markdown(of_harness).c_str(), stdout);
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
  if (options.list_data) {
    problems.raise();
    list_data(options);
    return 0;
  }
  const std::vector<std::string> files = find_task_files(options.tasks, options.data, problems);
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
  const std::vector<eval::PreparedTask> prepared = read_tasks(options, files);
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
