// The sets of tasks, by name: the same task name means other prompts and other numbers in each.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "eval/results.h"
#include "eval/task.h"

namespace espalier::eval {

struct TaskSet {
  std::string name;
  Tokenization tokenization = Tokenization::kSeparate;
  ResultLayout layout = ResultLayout::kLmEval2022;
  std::vector<Task> tasks;
};

const TaskSet& bloom_2022_set();
const TaskSet& megatron_set();  // zero_shot.h

// The set that has all of `names`, BLOOM's if none has.
const TaskSet& set_with(const std::vector<std::string>& names);

// The tasks of that name, in the order given; "all" stands for every one. Names that the set does not have are named
// among the problems, with those that are near.
std::vector<Task> choose_tasks(const TaskSet& set, const std::vector<std::string>& names, Problems& problems);

}  // namespace espalier::eval
