#include <map>

#include "base/error.h"
#include "eval/internal/bloom_tasks.h"
#include "eval/scores.h"
#include "text/python_text.h"

namespace espalier::eval::internal {
namespace {

using text::python::slice;

Question mc_taco(const Fields& document) {
  const std::string sentence = document.text("sentence"), asked = document.text("question");
  Question question = ask_choices(
      sentence + "\nQuestion: " + asked + "\nAnswer: " + document.text("answer") + "\nPlausible:", {"no", "yes"},
      static_cast<size_t>(document.label("label", {"no", "yes"})));
  question.group = sentence + " " + asked;
  return question;
}

// One document for each article, in the order of first sight, with its questions as they come.
std::vector<Json> by_article(std::vector<Json> records) {
  std::map<std::string, size_t> places;
  std::vector<Json> articles;
  for (Json& record : records) {
    if (!record.contains("article") || !record["article"].is_string()) {
      articles.push_back(std::move(record));
      continue;
    }
    const auto [place, is_new] = places.try_emplace(record["article"].get<std::string>(), articles.size());
    if (is_new) articles.push_back({{"article", record["article"]}, {"problems", Json::array()}});
    record.erase("article");
    articles[place->second]["problems"].push_back(std::move(record));
  }
  return articles;
}

struct Problem {
  std::string question;
  std::vector<std::string> options;
  size_t right = 0;
};

Problem read_problem(const Fields& fields) {
  Problem problem = {fields.text("question"), fields.texts("options"),
                     static_cast<size_t>(fields.label("answer", {"A", "B", "C", "D"}))};
  if (problem.options.size() != 4)
    fields.refuse(concat("field 'options' has ", problem.options.size(), " texts, not 4"));
  return problem;
}

// The earlier questions of the article come with their answers. One with a gap at its end is cut to that gap, though
// its beginning was meant to stay.
Question race(const Fields& document) {
  std::string context = "Article: " + document.text("article") + "\n\n";
  const std::vector<Fields> problems = document.objects("problems");
  if (problems.empty()) document.refuse("field 'problems' is empty");
  for (size_t i = 0; i + 1 < problems.size(); ++i) {
    const Problem problem = read_problem(problems[i]);
    const std::string& answer = problem.options[problem.right];
    if (problem.question.ends_with("  _  ."))
      context += std::string(slice(problem.question, -5)) + answer + "\n";
    else
      context += "Question: " + problem.question + "\nAnswer: " + answer + "\n";
  }
  const Problem last = read_problem(problems.back());
  return ask_choices(context + last.question, last.options, last.right);
}

}  // namespace

std::vector<Task> reading_tasks() {
  return {
      {"mc_taco",
       0,
       {"mc_taco", "test", 9442, {"sentence", "question", "answer", "label"}},
       mc_taco,
       {{"em", true, judge_likeliest, question_exact_match()}, {"f1", true, judge_likeliest, question_f1()}},
       nullptr,
       false,
       "a question's answers would be torn apart"},
      {"race", 1, {"race high", "test", 1045, {"article", "question", "options", "answer"}}, race, acc(), by_article},
  };
}

}  // namespace espalier::eval::internal
