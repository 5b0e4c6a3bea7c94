// Questions with their answers, as the files of Natural Questions that DPR publishes have them (nq-dev.csv): a
// question, a tab, and a Python list of strings. The list is read as a literal; nothing of a file is ever evaluated.
#pragma once

#include <string>
#include <vector>

namespace espalier::retrieval {

struct Question {
  std::string text;
  std::vector<std::string> answers;
};

// A UserError (kBadData) names the file and the line of what is not a question with answers.
std::vector<Question> read_questions(const std::string& path);

}  // namespace espalier::retrieval
