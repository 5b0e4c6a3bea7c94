#include "eval/task_set.h"

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
                near.empty() ? concat("; its tasks are ", join(names, ", "),
                                      "; those of lm_eval 0.4 come from its task files: --task-files DIR")
                             : concat("; did you mean ", join(near, " or "), "?"));
}

}  // namespace

const TaskSet& bloom_2022_set() {
  static const TaskSet set = {"bloom-2022", bloom_2022_tasks()};
  return set;
}

const TaskSet& megatron_set() {
  static const TaskSet set = {"megatron", zero_shot_tasks()};
  return set;
}

const TaskSet* find_set(const std::string& name) {
  for (const TaskSet* set : {&bloom_2022_set(), &megatron_set()})
    if (set->name == name) return set;
  return nullptr;
}

const TaskSet* set_with(const std::string& task) {
  for (const TaskSet* set : {&bloom_2022_set(), &megatron_set()})
    if (find_task(*set, task) != nullptr) return set;
  return nullptr;
}

std::vector<Task> choose_tasks(const TaskSet& set, const std::string& name, Problems& problems) {
  if (name == "all") return set.tasks;
  if (const Task* task = find_task(set, name)) return {*task};
  problems.add(unknown_task(set, name));
  return {};
}

}  // namespace espalier::eval
