// The sets of tasks, by name: the same task name means other prompts and other numbers in each.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "eval/task.h"

namespace espalier::eval {

struct TaskSet {
  std::string name;
  std::vector<Task> tasks;
};

const TaskSet& bloom_2022_set();
const TaskSet& megatron_set();  // zero_shot.h

// By its name; null where there is none.
const TaskSet* find_set(const std::string& name);
// The set that has `task`; null where none has.
const TaskSet* set_with(const std::string& task);

// The tasks of that name: "all" stands for every one. A name that the set does not have is named among the problems,
// with those that are near.
std::vector<Task> choose_tasks(const TaskSet& set, const std::string& name, Problems& problems);

}  // namespace espalier::eval
