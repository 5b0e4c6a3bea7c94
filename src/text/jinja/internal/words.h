// The words of an expression: names, strings, numbers and marks.
#pragma once

#include <string>
#include <string_view>

namespace espalier::text::jinja {

struct Word {
  enum Kind { kName, kString, kNumber, kMark, kEnd } kind = kEnd;
  std::string text;  // of a string the value
  size_t at = 0;
};

class WordReader {
 public:
  explicit WordReader(std::string_view text) : text_(text) { advance(); }

  const Word& word() const { return word_; }
  void advance();
  // A UserError with the place.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  bool is_decimal_point() const;
  void read_string(char quote);

  std::string_view text_;
  size_t at_ = 0;
  Word word_;
};

}  // namespace espalier::text::jinja
