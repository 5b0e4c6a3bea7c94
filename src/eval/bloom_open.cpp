#include <algorithm>

#include "base/error.h"
#include "eval/internal/bloom_tasks.h"
#include "eval/scores.h"

namespace espalier::eval::internal {
namespace {

Question lambada(const Fields& document) {
  const std::string text = document.text("text");
  const size_t blank = text.rfind(' ');
  if (blank == std::string::npos) document.refuse("field 'text' has no space before a last word");
  Question question;
  question.target = text.substr(blank);
  question.requests = {{.context = text.substr(0, blank), .continuation = question.target}};
  return question;
}

// Sorted, without those that begin like the one kept before them: where that is predicted, they need not be asked for.
std::vector<std::string> without_longer_forms(std::vector<std::string> answers) {
  std::sort(answers.begin(), answers.end());
  std::vector<std::string> kept;
  for (std::string& answer : answers)
    if (kept.empty() || !answer.starts_with(kept.back())) kept.push_back(std::move(answer));
  return kept;
}

Question ask_any(const Fields& document, const std::string& field) {
  Question question;
  question.choices = without_longer_forms(document.texts(field));
  if (question.choices.empty()) document.refuse("field '" + field + "' is empty");
  const std::string context = "Question: " + document.text("question") + "\nAnswer:";
  for (const std::string& choice : question.choices)
    question.requests.push_back({.context = context, .continuation = " " + choice});
  return question;
}

Question triviaqa(const Fields& document) {
  Question question = ask_any(document, "answer.aliases");
  question.target = " " + document.text("answer.value");
  return question;
}

Question webqs(const Fields& document) {
  Question question = ask_any(document, "answers");
  question.target = question.requests[0].continuation;
  return question;
}

}  // namespace

std::vector<Task> open_tasks() {
  const std::vector<Metric> any_greedy = {{"acc", true, score_any_greedy, mean()}};
  return {
      {"lambada",
       0,
       {"lambada_openai (lambada_test.jsonl of OpenAI)", "test", 5153, {"text"}},
       lambada,
       {{"ppl", false, take_log_likelihood, perplexity()}, {"acc", true, score_greedy, mean()}}},
      {"triviaqa",
       0,
       {"trivia_qa unfiltered", "validation", 11313, {"question", "answer.value", "answer.aliases"}},
       triviaqa,
       any_greedy},
      {"webqs", 0, {"web_questions", "test", 2032, {"question", "answers"}}, webqs, any_greedy},
  };
}

}  // namespace espalier::eval::internal
