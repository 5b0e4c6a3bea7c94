#include "eval/results.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/version.h"

namespace espalier::eval {
namespace {

// In the order of their first sight.
std::vector<std::string> distinct(const std::vector<std::string>& words) {
  std::vector<std::string> result;
  for (const std::string& word : words)
    if (std::find(result.begin(), result.end(), word) == result.end()) result.push_back(word);
  return result;
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json results_of_2022(const std::vector<TaskResult>& results) {
  Json all;
  for (const TaskResult& result : results) {
    Json& entry = all["results"][result.prepared->task.name];
    for (const MetricResult& metric : result.metrics) {
      entry[metric.name] = number_or_null(metric.value);
      if (metric.error) entry[metric.name + "_stderr"] = number_or_null(*metric.error);
    }
    all["versions"][result.prepared->task.name] = result.prepared->task.version;
  }
  return all;
}

Json metrics_of_04(const TaskResult& result) {
  Json entry = {{"alias", result.prepared->task.name}, {"sample_len", result.prepared->questions.size()}};
  for (const MetricResult& metric : result.metrics) {
    entry[metric.name + ",none"] = number_or_null(metric.value);
    entry[metric.name + "_stderr,none"] = metric.error ? number_or_null(*metric.error) : Json("N/A");
  }
  return entry;
}

Json config_of_04(const TaskResult& result, const EvaluationFacts& facts) {
  const Task& task = result.prepared->task;
  Json config = {{"task", task.name}, {"dataset_path", task.data.data_set}, {"split", task.data.split}};
  for (const MetricResult& metric : result.metrics)
    config["metric_list"].push_back({{"metric", metric.name}, {"higher_is_better", metric.higher_is_better}});
  config["num_fewshot"] = facts.num_fewshot;
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
    all["configs"][name] = config_of_04(result, facts);
    all["versions"][name] = result.prepared->task.version;
    all["n-shot"][name] = facts.num_fewshot;
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

}  // namespace

std::string results_json(const std::vector<TaskResult>& results, const EvaluationFacts& facts, ResultLayout layout) {
  Json all = layout == ResultLayout::kLmEval2022 ? results_of_2022(results) : results_of_04(results, facts);
  ESPALIER_CHECK(facts.sets.size() == results.size(), facts.sets.size(), " sets of ", results.size(), " tasks");
  std::vector<std::string> names, tokenizations;
  for (size_t i = 0; i < results.size(); ++i) {
    names.push_back(facts.sets[i]->name);
    tokenizations.push_back(name_of(facts.sets[i]->tokenization));
    all["task_sets"][results[i].prepared->task.name] = facts.sets[i]->name;
  }
  all["task_set"] = join(distinct(names), ",");
  all["tokenization"] = join(distinct(tokenizations), ",");
  all["espalier_version"] = kVersion;
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace espalier::eval
