// Whether a passage holds an answer, by the rules of DPR's evaluation, which Megatron uses.
//
// Both are brought into Unicode's form NFD. kString: the words of an answer follow each other in the passage; words are
// runs of letters, marks and digits, or any other single character except blanks, in lower case. kRegex: the answer
// is a regular expression that matches anywhere, whatever the case; one that cannot be compiled matches nothing.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::retrieval {

enum class AnswerMatch { kString, kRegex };

class AnswerMatcher {
 public:
  AnswerMatcher(AnswerMatch kind, const std::vector<std::string>& answers);
  ~AnswerMatcher();
  AnswerMatcher(AnswerMatcher&&) noexcept;

  bool matches(std::string_view passage) const;

 private:
  struct Expression;
  std::vector<std::vector<std::string>> words_;  // of each answer that has some
  std::vector<Expression> expressions_;
  AnswerMatch kind_;
};

// What kString compares: the words of a text in NFD and lower case.
std::vector<std::string> answer_words(std::string_view text);

// For each question: whether the first, second, ... passage found holds an answer, as many as were found. Element k -
// 1 of the result counts the questions with a hit among the first k.
std::vector<int64_t> top_k_hits(const std::vector<std::vector<bool>>& hits_of_questions);

}  // namespace espalier::retrieval
