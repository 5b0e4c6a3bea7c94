// Regular expressions over UTF-8 by PCRE2, with Unicode classes. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace espalier::curate {

class Regex {
 public:
  enum class Anchor { kAnywhere, kStart };
  // The expression is ours: an error in it is a bug. ^ and $ are the ends of lines with `multiline`.
  explicit Regex(const std::string& expression, bool multiline, Anchor anchor = Anchor::kAnywhere);
  ~Regex();
  Regex(Regex&&) noexcept;

  // What one match holds: the whole, and the first group.
  struct Match {
    size_t begin, end, group_begin, group_end;
  };
  // The matches from left to right, as re.finditer gives them. False where the text made the search take so many steps
  // that it was given up.
  bool for_each(std::string_view text, const std::function<void(const Match&)>& use) const;
  bool matches(std::string_view text) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace espalier::curate
