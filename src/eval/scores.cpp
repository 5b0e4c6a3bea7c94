#include "eval/scores.h"

#include <algorithm>

#include "base/error.h"
#include "text/python_text.h"

namespace espalier::eval {
namespace {

using text::python::num_characters;

std::vector<double> log_likelihoods(std::span<const Answer> answers) {
  std::vector<double> values;
  for (const Answer& answer : answers) values.push_back(answer.log_likelihood);
  return values;
}

Item share(bool right) { return {.value = right ? 1.0 : 0.0}; }

// `length` of a choice: what its log-likelihood is divided by.
template <class Length>
Item score_divided(const Question& question, std::span<const Answer> answers, Length length) {
  std::vector<double> values = log_likelihoods(answers);
  ESPALIER_CHECK(values.size() == question.choices.size(), values.size(), " answers");
  for (size_t i = 0; i < values.size(); ++i) values[i] /= static_cast<double>(length(question.choices[i]));
  return share(arg_max(values) == question.gold);
}

size_t first_unless_second(std::span<const Answer> answers) {
  return answers[0].log_likelihood > answers[1].log_likelihood ? 0 : 1;
}

}  // namespace

Item score_likeliest(const Question& question, std::span<const Answer> answers) {
  return share(arg_max(log_likelihoods(answers)) == question.gold);
}

Item score_likeliest_by_characters(const Question& question, std::span<const Answer> answers) {
  return score_divided(question, answers, [](const std::string& choice) { return num_characters(choice); });
}

Item score_likeliest_by_bytes(const Question& question, std::span<const Answer> answers) {
  return score_divided(question, answers, [](const std::string& choice) { return choice.size(); });
}

Item score_first_of_two(const Question& question, std::span<const Answer> answers) {
  return share(first_unless_second(answers) == question.gold);
}

Item judge_first_of_two(const Question& question, std::span<const Answer> answers) {
  return {first_unless_second(answers) == 0 ? 1.0 : 0.0, question.gold == 0 ? 1.0 : 0.0, question.group,
          question.member};
}

Item judge_likeliest(const Question& question, std::span<const Answer> answers) {
  return {static_cast<double>(arg_max(log_likelihoods(answers))), static_cast<double>(question.gold), question.group,
          question.member};
}

Item score_any_greedy(const Question&, std::span<const Answer> answers) {
  return share(std::any_of(answers.begin(), answers.end(), [](const Answer& answer) { return answer.is_greedy; }));
}

Item score_greedy(const Question&, std::span<const Answer> answers) { return share(answers[0].is_greedy); }

Item take_log_likelihood(const Question& question, std::span<const Answer> answers) {
  return {.value = answers[0].log_likelihood, .reference = question.reference};
}

}  // namespace espalier::eval
