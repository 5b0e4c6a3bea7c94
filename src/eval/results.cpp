#include "eval/results.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/version.h"

namespace espalier::eval {
namespace {

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json results_of_2022(const std::vector<TaskResult>& results) {
  Json all;
  for (const TaskResult& result : results) {
    Json& entry = all["results"][result.prepared->task.name];
    for (const MetricResult& metric : result.metrics) {
      const std::string label = label_of(result.prepared->task, metric);
      entry[label] = number_or_null(metric.value);
      if (metric.error) entry[label + "_stderr"] = number_or_null(*metric.error);
    }
    all["versions"][result.prepared->task.name] = result.prepared->task.version;
  }
  return all;
}

Json metrics_of_04(const TaskResult& result) {
  const Task& task = result.prepared->task;
  Json entry = {{"alias", task.alias.empty() ? task.name : task.alias},
                {"sample_len", result.prepared->questions.size()}};
  for (const MetricResult& metric : result.metrics) {
    entry[metric.name + "," + metric.filter] = number_or_null(metric.value);
    entry[metric.name + "_stderr," + metric.filter] = metric.error ? number_or_null(*metric.error) : Json("N/A");
  }
  return entry;
}

Json config_of_04(const TaskResult& result) {
  const Task& task = result.prepared->task;
  Json config = {{"task", task.name}, {"dataset_path", task.data.data_set}, {"split", task.data.split}};
  for (const MetricResult& metric : result.metrics)
    config["metric_list"].push_back({{"metric", metric.name}, {"higher_is_better", metric.higher_is_better}});
  if (task.generation) {
    config["generation_kwargs"] = task.generation->arguments;
    config["repeats"] = task.repeats;
  }
  config["num_fewshot"] = task.num_fewshot;
  config["metadata"] = {{"version", task.version}};
  return config;
}

Json results_of_04(const std::vector<TaskResult>& results, const EvaluationFacts& facts) {
  Json all;
  for (const char* part :
       {"results", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples"})
    all[part] = Json::object();
  for (const TaskResult& result : results) {
    const std::string& name = result.prepared->task.name;
    all["results"][name] = metrics_of_04(result);
    all["group_subtasks"][name] = Json::array();
    all["configs"][name] = config_of_04(result);
    all["versions"][name] = result.prepared->task.version;
    all["n-shot"][name] = result.prepared->task.num_fewshot;
    for (const MetricResult& metric : result.metrics)
      all["higher_is_better"][name][metric.name] = metric.higher_is_better;
    all["n-samples"][name] = {{"original", result.prepared->num_available},
                              {"effective", result.prepared->questions.size()}};
  }
  all["config"] = {{"model", "espalier"},
                   {"model_args", facts.model},
                   {"limit", facts.limit ? Json(*facts.limit) : Json()},
                   {"bootstrap_iters", facts.bootstrap_iters},
                   {"random_seed", 0},
                   {"numpy_seed", 1234},
                   {"torch_seed", 1234},
                   {"fewshot_seed", 1234}};
  all["git_hash"] = nullptr;
  all["date"] = facts.date;
  return all;
}

// What all tasks share, or else what each has.
template <class Get>
Json of_tasks(const std::vector<TaskResult>& results, Get get) {
  Json each = Json::object();
  for (const TaskResult& result : results) each[result.prepared->task.name] = get(result.prepared->task);
  const bool is_shared =
      std::all_of(each.begin(), each.end(), [&](const Json& value) { return value == *each.begin(); });
  return is_shared && !each.empty() ? *each.begin() : each;
}

}  // namespace

std::string label_of(const Task& task, const MetricResult& metric) {
  return task.filters.size() > 1 ? concat(metric.name, ":", metric.filter) : metric.name;
}

std::string results_json(const std::vector<TaskResult>& results, const EvaluationFacts& facts, ResultLayout layout) {
  Json all = layout == ResultLayout::kLmEval2022 ? results_of_2022(results) : results_of_04(results, facts);
  all["task_set"] = of_tasks(results, [](const Task& task) { return task.set; });
  all["tokenization"] = of_tasks(results, [](const Task& task) { return std::string(name_of(task.tokenization)); });
  all["espalier_version"] = kVersion;
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace espalier::eval
