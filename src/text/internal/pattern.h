// What a Split or a Replace looks for: a literal, a regular expression, or a kind of character.
#pragma once

#include <cstddef>
#include <functional>
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
  // Any thread. Gives the stretches one after another, so that a long text's need not be held; `use` may call any
  // pattern, this one too.
  using Use = std::function<void(const Stretch&)>;
  virtual void for_each(std::string_view text, const Use& use) const = 0;
  // The same as a list.
  void find(std::string_view text, std::vector<Stretch>& stretches) const {
    for_each(text, [&stretches](const Stretch& stretch) { stretches.push_back(stretch); });
  }
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

// Joins stretches as the behaviour requires and passes on what remains (is_match has no meaning any more).
class StretchJoiner {
 public:
  StretchJoiner(SplitBehavior behavior, const Pattern::Use& use) : behavior_(behavior), use_(use) {}
  void add(const Stretch& stretch);
  void finish();  // after the last

 private:
  void hold(const Stretch& stretch);

  SplitBehavior behavior_;
  const Pattern::Use& use_;
  Stretch held_{0, 0, false};  // what the next may join
  bool holds_ = false, after_match_ = false;
};

}  // namespace espalier::text::internal
