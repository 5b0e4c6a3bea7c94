#include "apps/eval/tasks.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/format.h"
#include "base/log.h"
#include "eval/task_files.h"
#include "eval/task_set.h"

namespace espalier {
namespace {

constexpr const char* kLmEval04Set = "lm-eval-0.4";

struct QualifiedName {
  std::string set, task;  // no set: by the name of the task
};

bool is_set(const std::string& name) { return name == kLmEval04Set || eval::find_set(name) != nullptr; }

QualifiedName parse_name(const std::string& word, const std::string& usual_set) {
  const size_t colon = word.find(':');
  if (colon != std::string::npos && is_set(word.substr(0, colon)))
    return {word.substr(0, colon), word.substr(colon + 1)};
  return {usual_set, word};
}

EvalTask eval_task(const eval::Task& task, const std::string& name, bool is_strict) {
  return {.task = task, .of_file = std::nullopt, .data_name = name, .is_strict = is_strict, .file = "", .examples = ""};
}

class EvalTaskChooser {
 public:
  EvalTaskChooser(const EvalOptions& options, Problems& problems) : options_(options), problems_(problems) {}

  std::vector<EvalTask> choose() {
    for (const std::string& word : options_.tasks) {
      const QualifiedName name = parse_name(word, options_.task_set);
      // Names in task files may have a colon of their own.
      if (const size_t colon = name.task.find(':'); colon != std::string::npos && options_.task_files.empty())
        problems_.add("--tasks ", word, ": there is no set '", name.task.substr(0, colon),
                      "', only bloom-2022, megatron and ", kLmEval04Set);
      else
        take(name);
    }
    for (size_t i = 0; i < chosen_.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (chosen_[i].task.name == chosen_[j].task.name && chosen_[i].task.set == chosen_[j].task.set)
          problems_.add("--tasks: ", chosen_[i].task.name, " is named twice");
    name_apart();
    return std::move(chosen_);
  }

 private:
  // Tasks of two sets that have one name are SET:NAME in requests and results.
  void name_apart() {
    std::map<std::string, int> count;
    for (const EvalTask& task : chosen_) ++count[task.task.name];
    for (EvalTask& task : chosen_)
      if (count[task.task.name] > 1) task.task.name = concat(task.task.set, ":", task.task.name);
  }

  void take(const QualifiedName& name) {
    // Names of Megatron's tasks that say which of its numbers is meant.
    const std::map<std::string, std::string> megatrons = {{"wikitext103", eval::kWikitext103},
                                                          {"lambada-strict", eval::kZeroShotLambada}};
    const auto other_name = megatrons.find(name.task);
    if (other_name != megatrons.end() && (name.set.empty() || name.set == "megatron")) {
      for (eval::Task& task : eval::choose_tasks(eval::megatron_set(), other_name->second, problems_)) {
        task.name = name.task;
        chosen_.push_back(
            eval_task(task, name.task, options_.zero_shot.strict_lambada || name.task == "lambada-strict"));
      }
      return;
    }
    const eval::TaskSet* set = name.set.empty() ? eval::set_with(name.task) : eval::find_set(name.set);
    const bool has_files = !options_.task_files.empty();
    if (name.set == kLmEval04Set || (set == nullptr && name.set.empty() && has_files && name.task != "all"))
      return take_from_files(name.task);
    if (set == nullptr) set = &eval::bloom_2022_set();
    for (const eval::Task& task : eval::choose_tasks(*set, name.task, problems_))
      chosen_.push_back(eval_task(task, task.name, options_.zero_shot.strict_lambada));
  }

  void take_from_files(const std::string& name) {
    if (options_.task_files.empty()) {
      problems_.add("--tasks ", kLmEval04Set, ":", name,
                    ": --task-files DIR is required: the folder of lm_eval 0.4's task files (lm_eval/tasks)");
      return;
    }
    if (files_ == nullptr) {
      try {
        files_ = std::make_unique<eval::TaskFiles>(options_.task_files);
      } catch (const UserError& error) {
        problems_.add(error.what());
        return;
      }
    }
    for (const eval::TaskFile& file : files_->find(name, problems_)) {
      std::optional<eval::LmEvalTask> read = eval::read_lm_eval_task(
          file, {.num_fewshot = options_.num_fewshot, .max_gen_toks = options_.max_gen_toks}, problems_);
      if (!read) continue;
      read->task.set = kLmEval04Set;
      read->task.tokenization = eval::Tokenization::kJoint;
      EvalTask task = eval_task(read->task, read->task.name, false);
      task.of_file = std::move(read);
      chosen_.push_back(std::move(task));
    }
  }

  const EvalOptions& options_;
  Problems& problems_;
  std::unique_ptr<eval::TaskFiles> files_;
  std::vector<EvalTask> chosen_;
};

std::vector<eval::Document> documents_of(const std::string& file, const std::vector<std::string>& fields) {
  std::vector<eval::Document> documents = eval::read_documents(file, fields);
  if (fields.empty() && eval::is_table(file)) eval::type_columns(documents);
  return documents;
}

eval::PreparedTask prepare(const EvalOptions& options, const EvalTask& task) {
  if (task.is_megatrons()) {
    eval::ZeroShotOptions zero_shot = options.zero_shot;
    zero_shot.strict_lambada = task.is_strict;
    const bool is_corpus = task.task.data.fields.empty();
    eval::PreparedTask prepared =
        eval::prepare_zero_shot(is_corpus ? eval::kWikitext103 : eval::kZeroShotLambada, task.file, zero_shot);
    prepared.task.name = task.task.name;
    prepared.task.set = task.task.set;
    return prepared;
  }
  if (task.of_file) {
    eval::LmEvalTask asked = *task.of_file;
    asked.task = task.task;
    return eval::prepare_lm_eval(
        asked, documents_of(task.file, {}),
        task.examples.empty() ? std::vector<eval::Document>() : documents_of(task.examples, {}), options.limit);
  }
  eval::PreparedTask prepared =
      eval::prepare(task.task, eval::read_documents(task.file, task.task.data.fields), options.limit);
  const int64_t usual = task.task.data.num_documents;
  if (usual != 0 && usual != prepared.num_available)
    log_warning("task ", task.task.name, ": '", task.file, "' has ", format_counted(prepared.num_available, "document"),
                "; published numbers are of ", format_count(usual));
  return prepared;
}

}  // namespace

std::vector<EvalTask> choose_eval_tasks(const EvalOptions& options, Problems& problems) {
  return EvalTaskChooser(options, problems).choose();
}

void find_eval_files(const EvalOptions& options, std::vector<EvalTask>& tasks, Problems& problems) {
  std::vector<std::string> names;
  for (const EvalTask& task : tasks) names.push_back(task.data_name);
  const eval::DataFiles data(options.data, names, problems);
  if (options.data.empty()) return;
  for (EvalTask& task : tasks) {
    task.file = data.find(task.data_name, problems, task.task.data.files);
    if (task.of_file && !task.of_file->fewshot_split.empty() && !task.of_file->examples_are_tested)
      task.examples = data.find(task.data_name + "." + task.of_file->fewshot_split, problems);
  }
}

std::vector<eval::PreparedTask> prepare_eval_tasks(const EvalOptions& options, const std::vector<EvalTask>& tasks) {
  std::vector<eval::PreparedTask> prepared;
  Problems problems;
  ExitCode code = ExitCode::kBadData;
  for (const EvalTask& task : tasks) {
    try {
      prepared.push_back(prepare(options, task));
    } catch (const UserError& error) {
      problems.add(error.what());
      code = error.code();
    }
  }
  problems.raise(code);
  return prepared;
}

}  // namespace espalier
