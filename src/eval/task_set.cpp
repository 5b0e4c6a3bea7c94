#include "eval/task_set.h"

#include <algorithm>

#include "base/format.h"
#include "eval/bloom_2022.h"
#include "eval/zero_shot.h"

namespace espalier::eval {
namespace {

const Task* find_task(const TaskSet& set, const std::string& name) {
  for (const Task& task : set.tasks)
    if (task.name == name) return &task;
  return nullptr;
}

std::string unknown_task(const TaskSet& set, const std::string& name) {
  std::vector<std::string> names;
  for (const Task& task : set.tasks) names.push_back(task.name);
  const std::vector<std::string> near = nearest_names(name, names);
  return concat("--tasks ", name, ": no task of ", set.name,
                near.empty() ? concat("; its tasks are ", join(names, ", "))
                             : concat("; did you mean ", join(near, " or "), "?"));
}

}  // namespace

const TaskSet& bloom_2022_set() {
  static const TaskSet set = {"bloom-2022", Tokenization::kSeparate, ResultLayout::kLmEval2022, bloom_2022_tasks()};
  return set;
}

const TaskSet& megatron_set() {
  static const TaskSet set = {"megatron", Tokenization::kSeparate, ResultLayout::kLmEval2022, zero_shot_tasks()};
  return set;
}

const TaskSet& set_with(const std::vector<std::string>& names) {
  const bool is_megatrons = !names.empty() && std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return find_task(megatron_set(), name) != nullptr;
  });
  return is_megatrons ? megatron_set() : bloom_2022_set();
}

std::vector<Task> choose_tasks(const TaskSet& set, const std::vector<std::string>& names, Problems& problems) {
  std::vector<Task> chosen;
  for (const std::string& name : names) {
    if (name == "all") {
      chosen.insert(chosen.end(), set.tasks.begin(), set.tasks.end());
    } else if (const Task* task = find_task(set, name)) {
      chosen.push_back(*task);
    } else {
      problems.add(unknown_task(set, name));
    }
  }
  for (size_t i = 0; i < chosen.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (chosen[i].name == chosen[j].name) problems.add("--tasks: ", chosen[i].name, " is named twice");
  return chosen;
}

}  // namespace espalier::eval
