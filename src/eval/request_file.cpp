#include "eval/request_file.h"

#include <map>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "data/line_reader.h"
#include "eval/generation_rules.h"

namespace espalier::eval {
namespace {

const char* name_of(RequestKind kind) {
  switch (kind) {
    case RequestKind::kLogLikelihood: return "loglikelihood";
    case RequestKind::kRolling: return "loglikelihood_rolling";
    case RequestKind::kGenerate: return "generate_until";
    case RequestKind::kTokens: break;
  }
  return "loglikelihood_tokens";
}

// What of a request is text.
std::vector<std::pair<const char*, const std::string*>> texts_of(const Request& request) {
  switch (request.kind) {
    case RequestKind::kLogLikelihood: return {{"context", &request.context}, {"continuation", &request.continuation}};
    case RequestKind::kRolling: return {{"text", &request.continuation}};
    case RequestKind::kGenerate: return {{"context", &request.context}};
    case RequestKind::kTokens: break;
  }
  return {};
}

void add_generation(const Generation& generation, Json& line) {
  line["until"] = generation.until;
  line["max_gen_toks"] = generation.max_tokens;
  line["do_sample"] = generation.temperature > 0;
  if (generation.temperature == 0) return;
  line["temperature"] = generation.temperature;
  if (generation.top_p > 0) line["top_p"] = generation.top_p;
  if (generation.top_k > 0) line["top_k"] = generation.top_k;
}

Json rows_of(const std::vector<TokenRow>& encoded) {
  Json rows = Json::array();
  for (const TokenRow& row : encoded) rows.push_back({{"ids", row.ids}, {"num_predicted", row.num_predicted}});
  return rows;
}

// Counts what is wrong by kind, and keeps the first of each.
class AnswerProblems {
 public:
  void add(const char* kind, const std::string& first) {
    auto& [count, kept] = kinds_[kind];
    if (count++ == 0) kept = first;
  }
  void raise(const std::string& file) const {
    Problems problems;
    for (const auto& [kind, found] : kinds_)
      problems.add(file, ": ", kind, ": ", format_count(found.first), "; the first: ", found.second);
    problems.raise(ExitCode::kBadData);
  }

 private:
  std::map<std::string, std::pair<int64_t, std::string>> kinds_;
};

class AnswerReader {
 public:
  explicit AnswerReader(const std::vector<PreparedTask>& tasks) : tasks_(tasks) {
    for (size_t i = 0; i < tasks.size(); ++i) {
      places_[tasks[i].task.name] = i;
      answers_.emplace_back();
      given_.emplace_back();
      for (const Question& question : tasks[i].questions) {
        answers_[i].emplace_back(question.requests.size());
        given_[i].emplace_back(question.requests.size());
      }
    }
  }

  void take(const Fields& line, const std::string& place) {
    const auto task = places_.find(line.text("task"));
    const int64_t document = line.integer("doc_id", 0, INT64_MAX), index = line.integer("index", 0, INT64_MAX);
    if (task == places_.end() || document >= static_cast<int64_t>(answers_[task->second].size()) ||
        index >= static_cast<int64_t>(answers_[task->second][static_cast<size_t>(document)].size()))
      return problems_.add("lines that answer what was not requested",
                           concat(place, ", task ", line.text("task"), ", doc_id ", document, ", index ", index));
    const auto i = task->second, d = static_cast<size_t>(document), r = static_cast<size_t>(index);
    for (const auto& [name, text] : texts_of(tasks_[i].questions[d].requests[r]))
      if (line.has(name) && line.text(name) != *text)
        problems_.add(
            "lines with a text other than the one requested",
            concat(place, ", field '", name, "' of task ", task->first, ", doc_id ", document, ", index ", index));
    if (given_[i][d][r]) problems_.add("lines that answer a second time", place);
    given_[i][d][r] = true;
    if (const auto& generation = tasks_[i].questions[d].requests[r].generation)
      answers_[i][d][r].text = before_stops(line.text("text"), generation->until);
    else
      answers_[i][d][r] = {line.number("log_likelihood"), line.integer("is_greedy", 0, 1) == 1};
  }
  void note(const std::string& problem) { problems_.add("lines that are not answers", problem); }

  std::vector<std::vector<Answers>> finish(const std::string& file) {
    for (size_t i = 0; i < given_.size(); ++i)
      for (size_t d = 0; d < given_[i].size(); ++d)
        for (size_t r = 0; r < given_[i][d].size(); ++r)
          if (!given_[i][d][r])
            problems_.add("requests without an answer",
                          concat("task ", tasks_[i].task.name, ", doc_id ", d, ", index ", r));
    problems_.raise(file);
    return std::move(answers_);
  }

 private:
  const std::vector<PreparedTask>& tasks_;
  std::map<std::string, size_t> places_;
  std::vector<std::vector<Answers>> answers_;
  std::vector<std::vector<std::vector<bool>>> given_;
  AnswerProblems problems_;
};

}  // namespace

std::string request_lines(const PreparedTask& prepared, RequestEncoder* encoder) {
  std::string lines;
  for (size_t d = 0; d < prepared.questions.size(); ++d) {
    for (size_t r = 0; r < prepared.questions[d].requests.size(); ++r) {
      const Request& request = prepared.questions[d].requests[r];
      Json line = {{"task", prepared.task.name}, {"doc_id", d}, {"index", r}, {"type", name_of(request.kind)}};
      for (const auto& [name, text] : texts_of(request)) line[name] = *text;
      if (request.generation) add_generation(*request.generation, line);
      if (encoder != nullptr) {
        try {
          line["rows"] = rows_of(encoder->encode(request));
        } catch (const UserError& error) {
          throw UserError(concat("task ", prepared.task.name, ", ", prepared.documents[d].place, ": ", error.what()),
                          error.code());
        }
      }
      lines += line.dump() + "\n";
    }
  }
  return lines;
}

std::vector<std::vector<Answers>> read_answers(const std::string& file, const std::vector<PreparedTask>& tasks) {
  AnswerReader reader(tasks);
  data::LineReader lines({file});
  int64_t number = 0;
  for (std::string_view line; lines.next(line);) {
    const std::string place = concat("line ", ++number);
    if (line.find_first_not_of(" \t\r\n") == std::string_view::npos) continue;
    try {
      const Json record = parse_json<Json>(line, place);
      reader.take(Fields(record, place), place);
    } catch (const UserError& error) {
      reader.note(error.what());
    }
  }
  return reader.finish(file);
}

}  // namespace espalier::eval
