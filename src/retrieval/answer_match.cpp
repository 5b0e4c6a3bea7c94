#include "retrieval/answer_match.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "text/python_text.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::retrieval {
namespace {

std::string normal_form(std::string_view text) {
  std::string storage;
  int64_t num_replaced = 0;
  return text::python::nfd(text::repair_utf8(text, storage, num_replaced));
}

bool is_of_word(char32_t code) { return text::is_letter(code) || text::is_number(code) || text::is_mark(code); }

// Blanks, and what is unassigned or invisible.
bool is_no_word(char32_t code) {
  using text::Category;
  const Category category = text::category(code);
  return text::is_between(category, Category::kSpace, Category::kPrivateUse) || category == Category::kUnassigned;
}

}  // namespace

struct AnswerMatcher::Expression {
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> code;

  explicit Expression(const std::string& pattern) {
    int error = 0;
    size_t where = 0;
    code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_CASELESS | PCRE2_MULTILINE, &error, &where, nullptr));
  }
  bool matches(const std::string& text) const {
    if (code == nullptr) return false;
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
        pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
    return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(), nullptr) >=
           0;
  }
};

std::vector<std::string> answer_words(std::string_view text) {
  const std::string normal = text::python::lowercase(normal_form(text));
  std::vector<std::string> words;
  bool in_word = false;
  for (size_t at = 0; at < normal.size();) {
    const text::CodePoint point = text::decode_utf8(normal.data() + at);
    const std::string_view character(normal.data() + at, static_cast<size_t>(point.num_bytes));
    at += character.size();
    if (is_of_word(point.code)) {
      if (in_word)
        words.back() += character;
      else
        words.emplace_back(character);
      in_word = true;
      continue;
    }
    in_word = false;
    if (!is_no_word(point.code)) words.emplace_back(character);
  }
  return words;
}

AnswerMatcher::AnswerMatcher(AnswerMatch kind, const std::vector<std::string>& answers) : kind_(kind) {
  for (const std::string& answer : answers) {
    if (kind == AnswerMatch::kRegex)
      expressions_.emplace_back(normal_form(answer));
    else if (std::vector<std::string> words = answer_words(answer); !words.empty())
      words_.push_back(std::move(words));
  }
}
AnswerMatcher::~AnswerMatcher() = default;
AnswerMatcher::AnswerMatcher(AnswerMatcher&&) noexcept = default;

bool AnswerMatcher::matches(std::string_view passage) const {
  if (kind_ == AnswerMatch::kRegex) {
    const std::string normal = normal_form(passage);
    return std::any_of(expressions_.begin(), expressions_.end(),
                       [&](const Expression& expression) { return expression.matches(normal); });
  }
  const std::vector<std::string> words = answer_words(passage);
  return std::any_of(words_.begin(), words_.end(), [&](const std::vector<std::string>& answer) {
    return std::search(words.begin(), words.end(), answer.begin(), answer.end()) != words.end();
  });
}

std::vector<int64_t> top_k_hits(const std::vector<std::vector<bool>>& hits_of_questions) {
  std::vector<int64_t> counts;
  for (const std::vector<bool>& hits : hits_of_questions) {
    if (counts.size() < hits.size()) counts.resize(hits.size());
    const auto first = static_cast<size_t>(std::find(hits.begin(), hits.end(), true) - hits.begin());
    for (size_t place = first; place < hits.size(); ++place) ++counts[place];
  }
  return counts;
}

}  // namespace espalier::retrieval
