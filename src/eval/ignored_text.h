// What of texts does not count where they are compared: ignore_case, ignore_punctuation, ignore_numbers and
// regexes_to_ignore of lm_eval 0.4's metrics and filters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/fields.h"
#include "text/python_regex.h"

namespace espalier::eval {

class IgnoredText {
 public:
  enum class Punctuation { kAscii, kUnicode };  // string.punctuation, or all that Unicode calls so

  std::vector<std::shared_ptr<const text::python::Regex>> regexes;
  bool ignores_case = false, ignores_punctuation = false, ignores_numbers = false;
  Punctuation punctuation = Punctuation::kAscii;

  std::string remove(std::string text) const;
};

// Out of an entry of a task file; what is wrong with it is added to `problems`, with `place` before it.
IgnoredText read_ignored_text(const Json& entry, IgnoredText::Punctuation punctuation, const std::string& place,
                              Problems& problems);

}  // namespace espalier::eval
