// What a Split or a Replace looks for: a literal, a regular expression, or a kind of character.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/internal/json_file.h"

namespace espalier::text::internal {

// A stretch of a text. The stretches that a pattern gives cover the text in order.
struct Stretch {
  size_t begin, end;
  bool is_match;
};

class Pattern {
 public:
  virtual ~Pattern() = default;
  // Any thread.
  virtual void find(std::string_view text, std::vector<Stretch>& stretches) const = 0;
};

std::unique_ptr<Pattern> literal_pattern(const std::string& literal);
std::unique_ptr<Pattern> character_pattern(bool (*matches)(char32_t));  // each such character is a match
std::unique_ptr<Pattern> run_pattern(bool (*matches)(char32_t));        // each run of them is one
// An Oniguruma expression, matched by PCRE2 with classes of Unicode 16. `where` names it in the UserError that an
// expression of another meaning or with an error gets.
std::unique_ptr<Pattern> regex_pattern(const std::string& expression, const std::string& where);
// {"String": "..."} or {"Regex": "..."}
std::unique_ptr<Pattern> make_pattern(const JsonPart& part);

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

SplitBehavior make_behavior(const JsonPart& part, const char* key);

// The stretches that remain (all of them: is_match has no meaning any more).
std::vector<Stretch> apply_behavior(SplitBehavior behavior, const std::vector<Stretch>& stretches);

}  // namespace espalier::text::internal
