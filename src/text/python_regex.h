// Regular expressions of Python's re over str: what task files of lm_eval hold. Immutable; any thread.
//
// An expression is translated for PCRE2, with Unicode's classes. What Python does not have, or has with another
// meaning, is refused; inside square brackets \S counts the separators U+001C to U+001F as no blanks.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::text::python {

class Regex {
 public:
  // `where` names it in the UserError (kBadData) that an expression with an error gets, and one that would take too
  // long to match.
  Regex(std::string expression, std::string where);
  ~Regex();
  Regex(Regex&&) noexcept;

  // re.findall: the groups of each match, empty where one took no part; the whole match where there are no groups.
  std::vector<std::vector<std::string>> find_all(std::string_view text) const;
  // re.sub(expression, "", text)
  std::string remove_all(std::string_view text) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

std::string escape(std::string_view text);  // re.escape

}  // namespace espalier::text::python
