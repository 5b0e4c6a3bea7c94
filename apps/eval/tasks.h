// The tasks that `espalier eval --tasks` names, of whatever sets, with their files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/eval/options.h"
#include "eval/document_files.h"
#include "eval/lm_eval_task.h"
#include "eval/zero_shot.h"

namespace espalier {

struct EvalTask {
  eval::Task task;
  std::optional<eval::LmEvalTask> of_file;  // of the set lm-eval-0.4
  std::string data_name;                    // its file under --data
  bool is_strict = false;                   // LAMBADA of the whole last word
  std::string file, examples;               // where its documents are; once they are found

  bool is_megatrons() const { return task.set == "megatron"; }
};

// In the order of the names. What is wrong with names and task files is added to `problems`.
std::vector<EvalTask> choose_eval_tasks(const EvalOptions& options, Problems& problems);

// Fills in the files of every task.
void find_eval_files(const EvalOptions& options, std::vector<EvalTask>& tasks, Problems& problems);

// Their documents as questions; all that is wrong with them is one error.
std::vector<eval::PreparedTask> prepare_eval_tasks(const EvalOptions& options, const std::vector<EvalTask>& tasks);

}  // namespace espalier
