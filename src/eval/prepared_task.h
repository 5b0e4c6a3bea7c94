// A task with its documents: the questions in the order in which they are asked, and what came of the answers.
//
//   const PreparedTask prepared = prepare(task, read_documents(file, task.data.fields), limit);
//   ... an engine answers prepared.questions[i].requests[j] ...
//   const TaskResult result = score(prepared, answers, 100'000);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/document_files.h"
#include "eval/task.h"

namespace espalier::eval {

struct PreparedTask {
  Task task;
  std::vector<Document> documents;
  std::vector<Question> questions;  // one for each document
  int64_t num_available = 0;        // documents of the file, of which a limit may leave the first
};

// Puts the documents into the order of lm_eval in 2022 (Python's Random(42).shuffle), keeps the first `limit` of them,
// and asks. Documents that are not as the task wants them are named together, up to ten (kBadData).
PreparedTask prepare(const Task& task, std::vector<Document> documents, std::optional<int64_t> limit);

// The answers of one question, request by request.
using Answers = std::vector<Answer>;

struct MetricResult {
  std::string name, filter;
  bool higher_is_better = true;
  double value = 0;
  std::optional<double> error;
};

struct TaskResult {
  const PreparedTask* prepared = nullptr;
  std::vector<MetricResult> metrics;
  std::vector<Items> items;  // for each metric, one for each document
};

// `answers`: for each question, one for each of its requests.
TaskResult score(const PreparedTask& prepared, const std::vector<Answers>& answers, int64_t bootstrap_iters);

}  // namespace espalier::eval
