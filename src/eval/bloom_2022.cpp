#include "eval/bloom_2022.h"

#include <algorithm>

#include "eval/internal/bloom_tasks.h"
#include "eval/scores.h"

namespace espalier::eval {
namespace internal {

Question ask_choices(const std::string& context, std::vector<std::string> choices, size_t gold) {
  Question question;
  for (const std::string& choice : choices)
    question.requests.push_back({.context = context, .continuation = " " + choice});
  question.target = " " + choices.at(gold);
  question.choices = std::move(choices);
  question.gold = gold;
  return question;
}

std::vector<Metric> acc() { return {{"acc", true, score_likeliest, mean()}}; }

std::vector<Metric> acc_and_norm() {
  return {{"acc", true, score_likeliest, mean()}, {"acc_norm", true, score_likeliest_by_characters, mean()}};
}

std::vector<Metric> acc_of_two() { return {{"acc", true, score_first_of_two, mean()}}; }

}  // namespace internal

const std::vector<Task>& bloom_2022_tasks() {
  static const std::vector<Task> tasks = [] {
    std::vector<Task> all;
    for (const auto list : {internal::choice_tasks, internal::open_tasks, internal::glue_tasks,
                            internal::superglue_tasks, internal::reading_tasks})
      for (Task& task : std::vector<Task>(list())) all.push_back(std::move(task));
    for (Task& task : all) task.is_shuffled = true, task.set = "bloom-2022";
    std::sort(all.begin(), all.end(), [](const Task& a, const Task& b) { return a.name < b.name; });
    return all;
  }();
  return tasks;
}

const char* name_of(Tokenization tokenization) {
  return tokenization == Tokenization::kSeparate ? "separate" : "joint";
}

}  // namespace espalier::eval
