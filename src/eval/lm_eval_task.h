// Tasks of lm_eval 0.4 from their own files (task_files.h): what a model is asked about a document, with examples
// before it where they are wanted, and which metrics the answers go to. Numbers are those of the harness's hf model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eval/prepared_task.h"
#include "eval/task_files.h"

namespace espalier::eval {

struct LmEvalRules;  // what of a task file becomes prompts

struct LmEvalTask {
  Task task;  // it cannot be asked by itself: prepare_lm_eval makes its questions
  std::shared_ptr<const LmEvalRules> rules;
  int64_t num_fewshot = 0;
  std::string fewshot_split;  // whose documents the examples are; empty where there are none
  bool examples_are_tested = false;
};

// What is asked for in another way than the file has it.
struct LmEvalOverrides {
  std::optional<int64_t> num_fewshot;   // does not override a 0 of the file, as in the harness
  std::optional<int64_t> max_gen_toks;  // of generated texts
};

// Everything in the file that is not supported is added to `problems`, each with its line; nothing then.
std::optional<LmEvalTask> read_lm_eval_task(const TaskFile& file, const LmEvalOverrides& overrides, Problems& problems);

// `examples`: the documents of the few-shot split; empty where those of the tested split serve, or none. Documents that
// are not as the task wants them are named together, up to ten (kBadData).
PreparedTask prepare_lm_eval(const LmEvalTask& task, std::vector<Document> documents, std::vector<Document> examples,
                             std::optional<int64_t> limit);

// Cells of a table that are whole numbers all down a column become numbers, as where the harness loads one.
void type_columns(std::vector<Document>& documents);

}  // namespace espalier::eval
