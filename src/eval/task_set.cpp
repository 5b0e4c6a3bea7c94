#include "eval/task_set.h"

#include <algorithm>

#include "base/format.h"
#include "eval/bloom_2022.h"
#include "eval/zero_shot.h"

namespace espalier::eval {
namespace {

const Task* find_task(const TaskSet& set, const std::string& name) {
  for (const Task& task : set.tasks)
    if (task.name == name || (!task.other_name.empty() && task.other_name == name)) return &task;
  return nullptr;
}

std::string unknown_task(const std::string& name, const std::vector<const TaskSet*>& sets) {
  std::vector<std::string> of_sets, names;
  for (const TaskSet* set : sets) {
    of_sets.push_back(set->name);
    for (const Task& task : set->tasks) names.push_back(task.name);
  }
  const std::vector<std::string> near = nearest_names(name, names);
  return concat(
      "--tasks ", name, ": no task of ", join(of_sets, " or "),
      near.empty() ? concat("; there are ", join(names, ", ")) : concat("; did you mean ", join(near, " or "), "?"));
}

// The tasks that one word asks for.
std::vector<ChosenTask> chosen_by(const std::string& word, const TaskSet* default_set, Problems& problems) {
  const size_t colon = word.find(':');
  const std::string name = colon == std::string::npos ? word : word.substr(colon + 1);
  std::vector<const TaskSet*> sets = task_sets();
  if (default_set != nullptr) sets = {default_set};
  if (colon != std::string::npos) {
    std::vector<std::string> names;
    sets.clear();
    for (const TaskSet* set : task_sets()) {
      names.push_back(set->name);
      if (set->name == word.substr(0, colon)) sets = {set};
    }
    if (sets.empty()) {
      problems.add("--tasks ", word, ": there is no set '", word.substr(0, colon), "', only ", join(names, " and "));
      return {};
    }
  }
  if (name == "all") {
    std::vector<ChosenTask> all;
    for (const Task& task : sets.front()->tasks) all.push_back({sets.front(), task});
    return all;
  }
  for (const TaskSet* set : sets)
    if (const Task* task = find_task(*set, name)) {
      ChosenTask chosen = {set, *task};
      chosen.task.name = name;
      return {chosen};
    }
  problems.add(unknown_task(name, sets));
  return {};
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

const std::vector<const TaskSet*>& task_sets() {
  static const std::vector<const TaskSet*> sets = {&bloom_2022_set(), &megatron_set()};
  return sets;
}

std::vector<ChosenTask> choose_tasks(const std::vector<std::string>& words, const TaskSet* set, Problems& problems) {
  std::vector<ChosenTask> chosen;
  for (const std::string& word : words)
    for (ChosenTask& task : chosen_by(word, set, problems)) chosen.push_back(std::move(task));
  std::vector<bool> shares_its_name(chosen.size(), false);
  for (size_t i = 0; i < chosen.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      if (chosen[i].task.name != chosen[j].task.name) continue;
      if (chosen[i].set == chosen[j].set) problems.add("--tasks: ", chosen[i].task.name, " is named twice");
      shares_its_name[i] = shares_its_name[j] = true;
    }
  for (size_t i = 0; i < chosen.size(); ++i)
    if (shares_its_name[i]) chosen[i].task.name = chosen[i].set->name + ":" + chosen[i].task.name;
  return chosen;
}

}  // namespace espalier::eval
