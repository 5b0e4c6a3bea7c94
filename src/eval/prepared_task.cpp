#include "eval/prepared_task.h"

#include <algorithm>

#include "base/format.h"
#include "data/python_random.h"

namespace espalier::eval {
namespace {

constexpr uint64_t kSeedOfOrder = 42;

std::vector<Document> gather(const Task& task, std::vector<Document> records) {
  const std::string first_place = records.empty() ? "" : records[0].place;
  const std::string file = first_place.substr(0, first_place.rfind(':'));
  std::vector<Json> contents;
  for (Document& record : records) contents.push_back(std::move(record.content));
  std::vector<Document> documents;
  for (Json& content : task.gather(std::move(contents)))
    documents.push_back({std::move(content), concat(file, ", document ", documents.size() + 1)});
  return documents;
}

}  // namespace

PreparedTask prepare(const Task& task, std::vector<Document> documents, std::optional<int64_t> limit) {
  if (task.gather) documents = gather(task, std::move(documents));
  PreparedTask prepared = {task, {}, {}, static_cast<int64_t>(documents.size())};
  if (limit && *limit < prepared.num_available && !task.no_limit_because.empty())
    throw UserError(concat("task ", task.name, " does not accept a limit: ", task.no_limit_because), ExitCode::kUsage);
  if (task.is_shuffled) data::PythonRandom(kSeedOfOrder).shuffle(documents);
  if (limit && *limit < prepared.num_available) documents.resize(static_cast<size_t>(*limit));
  Problems problems;
  for (const Document& document : documents) {
    try {
      prepared.questions.push_back(task.ask(Fields(document.content, document.place)));
    } catch (const UserError& error) {
      problems.add("task ", task.name, ": ", error.what());
      if (problems.messages().size() == kMostProblems) break;
    }
  }
  problems.raise(ExitCode::kBadData);
  prepared.documents = std::move(documents);
  return prepared;
}

TaskResult score(const PreparedTask& prepared, const std::vector<Answers>& answers, int64_t bootstrap_iters) {
  ESPALIER_CHECK(answers.size() == prepared.questions.size(), answers.size());
  TaskResult result = {&prepared, {}, {}};
  for (const Metric& metric : prepared.task.metrics) {
    Items items;
    for (size_t i = 0; i < answers.size(); ++i) {
      ESPALIER_CHECK(answers[i].size() == prepared.questions[i].requests.size(), "question ", i);
      items.push_back(metric.score(prepared.questions[i], answers[i]));
    }
    MetricResult& made = result.metrics.emplace_back();
    made.name = metric.name;
    made.filter = metric.filter;
    made.higher_is_better = metric.higher_is_better;
    made.value = metric.aggregation.value(items);
    if (metric.aggregation.error) made.error = metric.aggregation.error(items, bootstrap_iters);
    result.items.push_back(std::move(items));
  }
  return result;
}

}  // namespace espalier::eval
