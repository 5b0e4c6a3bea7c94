// What an evaluation found, in the forms that other people's tools read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/prepared_task.h"

namespace espalier::eval {

// What was evaluated, and how: every result file says so.
struct EvaluationFacts {
  std::string model;  // for people: the checkpoint, or the file of answers
  int64_t bootstrap_iters = 100'000;
  std::optional<int64_t> limit;
  double date = 0;  // seconds since 1970
};

enum class ResultLayout {
  kLmEval2022,  // {"results": {task: {metric: value, metric_stderr: value}}, "versions": {task: n}}
  kLmEval04,    // metrics carry their filter ("acc,none"), next to configs, versions, n-shot, n-samples, ...
};

// "exact_match", or "exact_match:strict" where a task has several filters and each has its own value.
std::string label_of(const Task& task, const MetricResult& metric);

// Both with task_set and tokenization (of each task, where they differ) in addition to what the harness writes. A value
// that is not a number is null.
std::string results_json(const std::vector<TaskResult>& results, const EvaluationFacts& facts, ResultLayout layout);

// task,metric,value,err,version: a line for each metric, tasks in alphabetical order.
std::string results_csv(const std::vector<TaskResult>& results);

// A table of all metrics, as the harness prints it.
std::string results_markdown(const std::vector<TaskResult>& results);

// A line for each document, and each filter of generated texts, as lm_eval 0.4 writes with --log_samples.
std::string sample_lines(const TaskResult& result, const std::vector<Answers>& answers);

}  // namespace espalier::eval
