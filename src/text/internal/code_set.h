// A set of code points, for classes of regular expressions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::text::internal {

class CodeSet {
 public:
  CodeSet() = default;

  template <class Predicate>
  static CodeSet where(Predicate&& contains) {
    CodeSet set;
    for (char32_t code = 0; code <= kLast; ++code) {
      if (contains(code)) set.append(code);
    }
    return set;
  }
  // A general category ("Lu", "L", "Letter", ...), names as in \p{..}; none if there is no such.
  static std::optional<CodeSet> of_property(std::string_view name);

  void add(char32_t first, char32_t last);
  void add(const CodeSet& other);
  CodeSet complement() const;
  CodeSet intersection(const CodeSet& other) const;
  // As a bracketed class of PCRE2; surrogates, which no text holds, are left out.
  std::string to_class() const;

 private:
  static constexpr char32_t kLast = 0x10FFFF;
  struct Range {
    char32_t first, last;
  };
  void append(char32_t code) {
    if (!ranges_.empty() && ranges_.back().last + 1 == code) {
      ranges_.back().last = code;
    } else {
      ranges_.push_back({code, code});
    }
  }
  std::vector<Range> ranges_;  // sorted, apart, not touching
};

}  // namespace espalier::text::internal
