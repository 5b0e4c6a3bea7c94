#include "text/jinja/internal/words.h"

#include "base/error.h"
#include "text/python_literal.h"

namespace espalier::text::jinja {
namespace {

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool goes_on_name(char c) { return begins_name(c) || (c >= '0' && c <= '9'); }

}  // namespace

void WordReader::advance() {
  while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  word_ = {Word::kEnd, "", at_};
  if (at_ == text_.size()) return;
  const char c = text_[at_];
  if (begins_name(c)) {
    word_.kind = Word::kName;
    while (at_ < text_.size() && goes_on_name(text_[at_])) word_.text += text_[at_++];
  } else if (c == '\'' || c == '"') {
    read_string(c);
  } else if (c >= '0' && c <= '9') {
    word_.kind = Word::kNumber;
    while (at_ < text_.size() && (goes_on_name(text_[at_]) || is_decimal_point())) word_.text += text_[at_++];
  } else {
    word_.kind = Word::kMark;
    const std::string_view two = text_.substr(at_, 2);
    const bool is_two = two == "==" || two == "!=" || two == "<=" || two == ">=" || two == "//" || two == "**";
    word_.text = text_.substr(at_, is_two ? 2 : 1);
    at_ += word_.text.size();
  }
}

void WordReader::fail(const std::string& what) const {
  throw UserError(concat(what, " at byte ", word_.at + 1, " of the expression '", text_.substr(0, 200), "'"),
                  ExitCode::kBadData);
}

bool WordReader::is_decimal_point() const {
  return text_[at_] == '.' && at_ + 1 < text_.size() && text_[at_ + 1] >= '0' && text_[at_ + 1] <= '9';
}

void WordReader::read_string(char quote) {
  const size_t begin = at_++;
  while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
  if (at_ >= text_.size()) fail("a string without its end");
  ++at_;
  // Line ends may be in a template's string, but in none of Python's.
  std::string literal = std::string(2, quote) + std::string(text_.substr(begin, at_ - begin)) + std::string(2, quote);
  word_.kind = Word::kString;
  word_.text = python::parse_literal(literal).get<std::string>();
}

}  // namespace espalier::text::jinja
