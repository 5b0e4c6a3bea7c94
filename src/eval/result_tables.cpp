#include <algorithm>

#include "base/console.h"
#include "base/format.h"
#include "base/sha256.h"
#include "eval/results.h"
#include "text/python_text.h"

namespace espalier::eval {
namespace {

using text::python::repr;

Json logged(const Item& item, ItemForm form) {
  switch (form) {
    case ItemForm::kRightAndSaid: return {item.reference, item.value};
    case ItemForm::kValueAndWeight: return {item.value, item.reference};
    case ItemForm::kTexts: return {item.group, item.member};
    case ItemForm::kValue: break;
  }
  return item.value;
}

Json logged_arguments(const std::vector<Request>& requests) {
  Json all = Json::object();
  for (const Request& request : requests) {
    Json& arguments = all["gen_args_" + std::to_string(all.size())];
    switch (request.kind) {
      case RequestKind::kLogLikelihood:
        arguments = {{"arg_0", request.context}, {"arg_1", request.continuation}};
        break;
      case RequestKind::kRolling: arguments = {{"arg_0", request.continuation}}; break;
      case RequestKind::kGenerate:
        arguments = {{"arg_0", request.context}, {"arg_1", request.generation->arguments}};
        return all;  // the others ask the same again
      case RequestKind::kTokens:
        arguments = {{"arg_0", request.context_ids}, {"arg_1", request.continuation_ids}};
        break;
    }
  }
  return all;
}

std::string hash_of(const std::string& text) {
  Sha256 hash;
  hash.update(text);
  return hex_digits(hash.digest());
}

// What a document was answered, and what is left of that.
struct Responses {
  Json all = Json::array(), filtered = Json::array();
};

Responses responses_of(const Question& question, const Answers& answers, const AnswerFilter* filter) {
  Responses responses;
  std::vector<std::string> texts;
  for (const Answer& answer : answers) {
    texts.push_back(answer.text);
    if (filter != nullptr) continue;
    const Json text = {repr(answer.log_likelihood), answer.is_greedy ? "True" : "False"};
    responses.filtered.push_back(text);
    responses.all.push_back(Json::array({text}));
  }
  if (filter == nullptr) return responses;
  responses.all.push_back(texts);
  responses.filtered.push_back(filter->apply(question, std::move(texts)));
  return responses;
}

// `filter`: null where the answers are log-likelihoods.
Json sample(const TaskResult& result, size_t number, const Answers& answers, const AnswerFilter* filter) {
  const PreparedTask& prepared = *result.prepared;
  const Question& question = prepared.questions[number];
  const Responses responses = responses_of(question, answers, filter);
  std::vector<size_t> metrics;
  Json names = Json::array();
  for (size_t m = 0; m < result.metrics.size(); ++m)
    if (filter == nullptr || result.metrics[m].filter == filter->name) {
      metrics.push_back(m);
      names.push_back(result.metrics[m].name);
    }
  const Request& first = question.requests[0];
  Json line = {{"doc_id", number},
               {"doc", prepared.documents[number].content},
               {"target", question.target},
               {"arguments", logged_arguments(question.requests)},
               {"resps", responses.all},
               {"filtered_resps", responses.filtered},
               {"filter", filter == nullptr ? "none" : filter->name},
               {"metrics", names},
               {"doc_hash", hash_of(prepared.documents[number].content.dump(2))},
               {"prompt_hash", hash_of(first.kind == RequestKind::kRolling ? first.continuation : first.context)},
               {"target_hash", hash_of(question.target)}};
  for (const size_t m : metrics)
    line[result.metrics[m].name] = logged(result.items[m][number], prepared.task.metrics[m].aggregation.form);
  return line;
}

std::vector<const TaskResult*> by_name(const std::vector<TaskResult>& results) {
  std::vector<const TaskResult*> sorted;
  for (const TaskResult& result : results) sorted.push_back(&result);
  std::sort(sorted.begin(), sorted.end(),
            [](const TaskResult* a, const TaskResult* b) { return a->prepared->task.name < b->prepared->task.name; });
  return sorted;
}

using Row = std::vector<std::string>;

// Cells of a column as wide as the widest; numbers to the right.
std::string markdown(const std::vector<Row>& rows, const std::vector<bool>& to_the_right) {
  std::vector<size_t> widths(rows[0].size(), 3);
  for (const Row& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], display_width(row[c]));
  std::string table;
  for (size_t r = 0; r < rows.size(); ++r) {
    table += "|";
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const std::string blanks(widths[c] - display_width(rows[r][c]), ' ');
      table += (to_the_right[c] && r > 0 ? blanks + rows[r][c] : rows[r][c] + blanks) + "|";
    }
    table += "\n";
    if (r > 0) continue;
    table += "|";
    for (size_t c = 0; c < widths.size(); ++c)
      table += to_the_right[c] ? std::string(widths[c] - 1, '-') + ":|" : std::string(widths[c], '-') + "|";
    table += "\n";
  }
  return table;
}

}  // namespace

std::string results_csv(const std::vector<TaskResult>& results) {
  std::string table = "task,metric,value,err,version\n";
  for (const TaskResult* result : by_name(results))
    for (const MetricResult& metric : result->metrics)
      table +=
          concat(result->prepared->task.name, ",", label_of(result->prepared->task, metric), ",", repr(metric.value),
                 ",", metric.error ? repr(*metric.error) : "", ",", result->prepared->task.version.dump(), "\n");
  return table;
}

std::string results_markdown(const std::vector<TaskResult>& results) {
  std::vector<Row> rows = {{"Task", "Version", "Metric", "", "Value", "", "Stderr"}};
  for (const TaskResult& result : results)
    for (const MetricResult& metric : result.metrics) {
      const bool first = &metric == &result.metrics[0];
      rows.push_back({first ? result.prepared->task.name : "", first ? result.prepared->task.version.dump() : "",
                      label_of(result.prepared->task, metric), metric.higher_is_better ? "\u2191" : "\u2193",
                      format_fixed(metric.value, 4), metric.error ? "\u00b1" : "",
                      metric.error ? format_fixed(*metric.error, 4) : ""});
    }
  return markdown(rows, {false, true, false, false, true, false, true});
}

std::string sample_lines(const TaskResult& result, const std::vector<Answers>& answers) {
  std::string lines;
  const auto add = [&](const AnswerFilter* filter) {
    for (size_t i = 0; i < answers.size(); ++i)
      lines += sample(result, i, answers[i], filter).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  };
  const std::vector<AnswerFilter>& filters = result.prepared->task.filters;
  if (filters.empty()) add(nullptr);
  for (const AnswerFilter& filter : filters) add(&filter);
  return lines;
}

}  // namespace espalier::eval
