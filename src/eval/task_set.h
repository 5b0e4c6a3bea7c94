// The sets of tasks, by name: the same task name means other prompts and other numbers in each.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "eval/task.h"

namespace espalier::eval {

enum class ResultLayout {
  kLmEval2022,  // {"results": {task: {metric: value, metric_stderr: value}}, "versions": {task: n}}
  kLmEval04,    // metrics carry their filter ("acc,none"), beside configs, versions, n-shot, n-samples, ...
};

struct TaskSet {
  std::string name;
  Tokenization tokenization = Tokenization::kSeparate;
  ResultLayout layout = ResultLayout::kLmEval2022;
  std::vector<Task> tasks;
};

const TaskSet& bloom_2022_set();
const TaskSet& megatron_set();  // zero_shot.h

const std::vector<const TaskSet*>& task_sets();

// `task.name` is what requests and results call it: as it was asked for, with SET: before it where tasks of two sets
// are asked for by one name.
struct ChosenTask {
  const TaskSet* set = nullptr;
  Task task;
};

// Words NAME or SET:NAME, where the name "all" stands for every task of a set, in the order given. A name without a set
// is that of `set`, or without one of the first set that has it, in the order of task_sets(). Names that no set has are
// named among the problems, with those that are near.
std::vector<ChosenTask> choose_tasks(const std::vector<std::string>& words, const TaskSet* set, Problems& problems);

}  // namespace espalier::eval
