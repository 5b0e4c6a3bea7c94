// espalier eval: tasks to requests, answers to results. Between them is the engine, or somebody else's.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>

#include "apps/commands.h"
#include "apps/eval/model.h"
#include "apps/eval/options.h"
#include "apps/eval/tasks.h"
#include "apps/print_json.h"
#include "apps/tokenizer/options.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/output_checks.h"
#include "base/pending_file.h"
#include "base/whereabouts.h"
#include "eval/request_file.h"
#include "eval/results.h"
#include "eval/task_set.h"
#include "launch/environment.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

void print_data_json(const std::vector<EvalTask>& tasks) {
  for (const auto& [task, of_file, data_name, is_strict, file, examples] : tasks) {
    eval::Json line = {{"task", task.name},
                       {"task_set", task.set},
                       {"version", task.version},
                       {"data_set", task.data.data_set},
                       {"split", task.data.split},
                       {"documents", task.data.num_documents == 0 ? eval::Json() : eval::Json(task.data.num_documents)},
                       {"fields", task.data.fields},
                       {"file", data_name + ".jsonl"}};
    if (of_file && !of_file->fewshot_split.empty() && !of_file->examples_are_tested)
      line["examples"] = concat(data_name, ".", of_file->fewshot_split, ".jsonl");
    print_json(line);
  }
}

constexpr const char* kAboutFiles =
    "Each task reads TASK.jsonl, an object a line, or TASK.tsv with the names of the fields on its first line, also\n"
    "with .gz, .zst or .xz after it, in the folder that --data names. Data sets of the Hugging Face hub become such a\n"
    "file in Python: datasets.load_dataset('NAME', 'PART', split='SPLIT').to_json('TASK.jsonl', force_ascii=False)\n";
constexpr const char* kAboutMegatronsFiles = "Each task reads what --data FILE or --data TASK=FILE names.\n";

void list_data(const EvalOptions& options, const std::vector<EvalTask>& tasks) {
  if (options.json) return print_data_json(tasks);
  const bool all_megatrons =
      std::all_of(tasks.begin(), tasks.end(), [](const EvalTask& t) { return t.is_megatrons(); });
  std::string text = all_megatrons ? kAboutMegatronsFiles : kAboutFiles;
  for (const EvalTask& task : tasks) {
    const eval::TaskData& data = task.task.data;
    text += concat("\n", task.task.name, "\n  data    ", data.data_set, ", ", data.split);
    if (data.num_documents != 0) text += ", " + format_counted(data.num_documents, "document");
    text += data.fields.empty() ? "\n" : concat("\n  fields  ", join(data.fields, ", "), "\n");
    if (!data.files.empty())
      text += concat("  files   ", join(data.files, ", "), ", or --data ", task.task.name, "=FILE\n");
    if (!task.of_file) continue;
    text += concat("  file    ", task.data_name, ".jsonl\n");
    if (const std::string& split = task.of_file->fewshot_split; !split.empty() && !task.of_file->examples_are_tested)
      text += concat("  examples ", task.data_name, ".", split, ".jsonl, of the split ", split, "\n");
  }
  std::fputs(text.c_str(), stdout);
}

// What the tasks want of ids, once it is known whose they are.
void check_ids(const EvalOptions& options, const std::vector<EvalTask>& tasks, Problems& problems) {
  const bool encodes = !options.tokenizer.type.empty();
  const bool asks = options.write_requests.empty() && options.read_results.empty();
  const bool has_megatrons =
      std::any_of(tasks.begin(), tasks.end(), [](const EvalTask& t) { return t.is_megatrons(); });
  if (has_megatrons && options.limit) problems.add("--limit: megatron's tasks are read completely");
  if (options.num_fewshot && std::none_of(tasks.begin(), tasks.end(), [](const EvalTask& t) { return t.of_file; }))
    problems.add("--num-fewshot: only tasks of lm-eval-0.4 have examples: --task-files DIR, and lm-eval-0.4:NAME");
  if (options.max_gen_toks &&
      std::none_of(tasks.begin(), tasks.end(), [](const EvalTask& t) { return t.task.generation; }))
    problems.add(
        "--max-gen-toks: none of the tasks generates text",
        options.task_files.empty() ? "" : "; lm-eval-0.4:NAME is that of --task-files where other sets have it too");
  if (asks) {
    if (encodes && !options.load.empty()) problems.add("--tokenizer-type: the model of --load has its own tokenizer");
    return;
  }
  if (has_megatrons && !encodes) problems.add("--tokenizer-type is required: megatron's tasks consist of ids");
  if ((has_megatrons || encodes) && !options.sequence_length)
    problems.add("--seq-length is required where requests become ids");
  if (has_megatrons && options.sequence_length && options.zero_shot.overlapping_eval > *options.sequence_length)
    problems.add("--overlapping-eval ", options.zero_shot.overlapping_eval, " is more than --seq-length ",
                 *options.sequence_length, ": ids between the windows would count nowhere");
}

// `model`: without one the ids are those of a decoder.
void write_requests(const EvalOptions& options, const EvalModel& model, const std::vector<eval::PreparedTask>& tasks,
                    const std::string& file) {
  std::map<eval::Tokenization, eval::RequestEncoder> encoders;
  if (const text::Tokenizer* tokenizer = options.zero_shot.tokenizer)
    for (const auto tokenization : {eval::Tokenization::kSeparate, eval::Tokenization::kJoint})
      encoders.try_emplace(tokenization, *tokenizer, tokenization, *model.prefix, *options.sequence_length,
                           model.has_encoder ? eval::ContextReader::kEncoder : eval::ContextReader::kDecoder);
  PendingFile pending(file);
  OutputFile output(pending.temporary());
  for (const eval::PreparedTask& task : tasks) {
    const auto encoder = encoders.find(task.task.tokenization);
    const std::string lines = eval::request_lines(task, encoder == encoders.end() ? nullptr : &encoder->second);
    output.write(lines.data(), lines.size());
  }
  output.sync();
  output.close();
  move_into_place({&pending});
  int64_t num_cut = 0;
  for (const auto& [tokenization, encoder] : encoders) num_cut += encoder.num_cut();
  if (num_cut > 0)
    log_warning(format_counted(num_cut, "request"), " had more ids than --seq-length ", *options.sequence_length,
                " takes: the beginning of the context is left out");
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

// Results of the harness begin as ours do; what the file says last tells them apart.
std::string describe_other_results(const std::string& path) {
  constexpr int64_t kEndBytes = 256;
  const std::string kind = "results of espalier eval";
  std::string why = describe_other_file(path, "{\n  \"results\": ", kind);
  std::error_code error;
  if (!why.empty() || !fs::is_regular_file(path, error) || fs::file_size(path, error) == 0) return why;
  const std::string text = read_file(path);
  const size_t end = text.size() - std::min<size_t>(text.size(), kEndBytes);
  if (text.find("\"espalier_version\"", end) != std::string::npos) return "";
  return concat("'", path, "' exists and is not ", kind, ". Give another name.");
}

// A file that another program wrote is not replaced unless it is asked for.
void check_outputs(const EvalOptions& options, const std::vector<EvalTask>& tasks, Problems& problems) {
  if (options.overwrite) return;
  const auto check = [&](const char* option, const std::string& why) {
    if (!why.empty()) problems.add(option, ": ", why, " Or --overwrite replaces it");
  };
  if (!options.write_requests.empty())
    check("--write-requests", describe_other_file(options.write_requests, R"({"task":)", "a file of requests"));
  if (!options.results_csv.empty())
    check("--results-csv",
          describe_other_file(options.results_csv, "task,metric,value,err,version\n", "a table of results"));
  if (options.results_path.empty()) return;
  check("--results-path", describe_other_results(options.results_path));
  if (options.log_samples)
    for (const EvalTask& task : tasks)
      check("--log-samples", describe_other_file(samples_path(options.results_path, task.task.name), R"({"doc_id":)",
                                                 "a file of samples"));
}

void print_results(const EvalOptions& options, const std::vector<eval::TaskResult>& results, const std::string& json) {
  if (options.json) {
    print_json(eval::Json::parse(json));
    return;
  }
  std::vector<eval::TaskResult> others;
  for (const eval::TaskResult& result : results)
    if (result.prepared->task.set == eval::megatron_set().name)
      std::fputs(eval::zero_shot_report(result).c_str(), stdout);
    else
      others.push_back(result);
  if (!others.empty()) std::fputs(eval::results_markdown(others).c_str(), stdout);
}

eval::ResultLayout layout_of(const EvalOptions& options, const std::vector<eval::PreparedTask>& tasks) {
  if (options.layout) return *options.layout;
  const bool has_files_tasks = std::any_of(tasks.begin(), tasks.end(), [](const eval::PreparedTask& prepared) {
    return prepared.task.tokenization == eval::Tokenization::kJoint;
  });
  return has_files_tasks ? eval::ResultLayout::kLmEval04 : eval::ResultLayout::kLmEval2022;
}

using AnswersOfTasks = std::vector<std::vector<eval::Answers>>;

std::vector<eval::TaskResult> score_all(const std::vector<eval::PreparedTask>& tasks, const AnswersOfTasks& answers,
                                        int64_t bootstrap_iters) {
  std::vector<eval::TaskResult> results;
  for (size_t i = 0; i < tasks.size(); ++i) results.push_back(eval::score(tasks[i], answers[i], bootstrap_iters));
  return results;
}

// What 8 bits change: every value of `int8` beside that of the weights as they are saved.
void say_int8_shift(const std::vector<eval::PreparedTask>& tasks, const std::string& int8, const std::string& saved) {
  const auto in_int8 = score_all(tasks, eval::read_answers(int8, tasks), /*bootstrap_iters=*/0),
             as_saved = score_all(tasks, eval::read_answers(saved, tasks), /*bootstrap_iters=*/0);
  for (size_t task = 0; task < tasks.size(); ++task)
    for (size_t metric = 0; metric < in_int8[task].metrics.size(); ++metric) {
      const double now = in_int8[task].metrics[metric].value, before = as_saved[task].metrics[metric].value;
      const std::string share = before == 0 ? "" : format_printf(" (%+.3f %%)", 100 * (now - before) / before);
      log_info("8-bit weights: ", tasks[task].task.name, " ", in_int8[task].metrics[metric].name,
               format_printf(" %.6g instead of %.6g", now, before), share);
    }
}

void read_results(const EvalOptions& options, const std::vector<eval::PreparedTask>& tasks, const std::string& file) {
  const AnswersOfTasks answers = eval::read_answers(file, tasks);
  const std::vector<eval::TaskResult> results = score_all(tasks, answers, options.bootstrap_iters);
  const std::string json = eval::results_json(results, facts_of(options), layout_of(options, tasks));
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
  std::vector<EvalTask> tasks;
  if (options.requests.empty()) tasks = choose_eval_tasks(options, problems);
  if (options.list_data) {
    problems.raise();
    list_data(options, tasks);
    return 0;
  }
  check_ids(options, tasks, problems);
  find_eval_files(options, tasks, problems);
  check_outputs(options, tasks, problems);
  EvalModel model;
  if (!options.load.empty() && problems.empty()) {
    model = open_eval_model(options.load, options.ckpt_step, options.ema);
    model.int8_weights = options.int8_weights;
    model.stream_layers = options.stream_layers;
    model.neighbors = options.neighbors;
    model.tensor_ranks = options.tensor_ranks;
    model.device = options.device;
    for (const EvalTask& task : tasks)
      if (model.has_encoder && task.is_megatrons())
        problems.add("--tasks ", task.task.name, ": '", options.load,
                     "' holds a T5, whose encoder reads what comes before; megatron's tasks read one stream of text");
    if (!options.sequence_length) options.sequence_length = model.sequence_length;
    if (*options.sequence_length > model.sequence_length)
      problems.add("--seq-length ", *options.sequence_length, " is longer than that of the model's training, ",
                   model.sequence_length);
  }
  std::unique_ptr<text::Tokenizer> tokenizer = std::move(model.tokenizer);
  if (!options.tokenizer.type.empty()) tokenizer = load_tokenizer(options.tokenizer, problems);
  if (options.load.empty() && tokenizer != nullptr) model.prefix = tokenizer->eod();
  if (tokenizer != nullptr && !model.prefix)
    problems.add("the tokenizer has no end-of-document id, which is needed where a request has no context");
  problems.raise();
  options.zero_shot.tokenizer = tokenizer.get();
  if (options.sequence_length) options.zero_shot.sequence_length = *options.sequence_length;

  clean_up_when_interrupted();
  if (model.tensor_ranks > 1) {
    open_whereabouts();  // the launcher looks at this process; its engine is a child
    if (launch::detect_environment().rank > 0) {
      help_to_ask_model(model, options.num_threads);
      return 0;
    }
  }
  if (!options.requests.empty()) {
    model.tokenizer = std::move(tokenizer);
    answer_request_lines(model, options.requests, *options.sequence_length, options.num_threads);
    return 0;
  }
  const std::vector<eval::PreparedTask> prepared = prepare_eval_tasks(options, tasks);
  if (!options.write_requests.empty()) {
    write_requests(options, model, prepared, options.write_requests);
    say_what_was_written(options, prepared);
  } else if (!options.read_results.empty()) {
    read_results(options, prepared, options.read_results);
  } else {
    const EvalFolder folder;
    const std::string requests = folder.file("requests.jsonl"), answers = folder.file("answers.jsonl");
    write_requests(options, model, prepared, requests);
    ask_model(model, requests, answers, options.num_threads);
    read_results(options, prepared, answers);
    if (options.int8_shift) {
      const std::string saved = folder.file("saved.jsonl");
      model.int8_weights = false;
      ask_model(model, requests, saved, options.num_threads);
      say_int8_shift(prepared, answers, saved);
    }
  }
  return 0;
}

}  // namespace espalier
