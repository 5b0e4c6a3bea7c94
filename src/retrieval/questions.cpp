#include "retrieval/questions.h"

#include <algorithm>

#include "base/error.h"
#include "retrieval/tab_file.h"
#include "text/python_literal.h"

namespace espalier::retrieval {

std::vector<Question> read_questions(const std::string& path) {
  TabFile file(path);
  std::vector<Question> questions;
  std::vector<std::string> fields;
  while (file.next(fields)) {
    if (fields.size() != 2)
      file.refuse(concat("expected a question and a list of its answers with a tab between, found ", fields.size(),
                         fields.size() == 1 ? " field" : " fields"));
    Question question{.text = fields[0], .answers = {}};
    text::python::Json answers;
    try {
      answers = text::python::parse_literal(fields[1]);
    } catch (const UserError& error) {
      file.refuse(concat("the answers are not a list of strings: ", error.what()));
    }
    if (!answers.is_array() ||
        !std::all_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.is_string(); }))
      file.refuse(concat("expected a list of strings as answers, such as ['1912', 'in 1912'], found ", fields[1]));
    for (const auto& answer : answers) question.answers.push_back(answer.get<std::string>());
    questions.push_back(std::move(question));
  }
  if (questions.empty()) throw UserError(concat("'", path, "' holds no questions"), ExitCode::kBadData);
  return questions;
}

}  // namespace espalier::retrieval
