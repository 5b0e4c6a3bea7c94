#include "base/literal.h"

#include <charconv>
#include <cstdlib>

#include "base/format.h"

namespace espalier {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes digits from text[at] on, single underscores between them allowed, and appends them to `plain`.
bool take_digits(const std::string& text, size_t& at, std::string& plain) {
  const size_t begin = at;
  while (at < text.size()) {
    if (is_digit(text[at])) {
      plain += text[at++];
    } else if (text[at] == '_' && at > begin && at + 1 < text.size() && is_digit(text[at + 1])) {
      ++at;
    } else {
      break;
    }
  }
  return at > begin;
}

void take_sign(const std::string& text, size_t& at, std::string& plain) {
  if (at < text.size() && (text[at] == '+' || text[at] == '-')) {
    if (text[at] == '-') plain += '-';
    ++at;
  }
}

bool is_named_number(const std::string& text, size_t at) {
  std::string lower;
  for (; at < text.size(); ++at)
    lower += text[at] >= 'A' && text[at] <= 'Z' ? static_cast<char>(text[at] + 32) : text[at];
  return lower == "inf" || lower == "infinity" || lower == "nan";
}

}  // namespace

std::optional<int64_t> parse_python_int(const std::string& text) {
  const std::string word = strip(text);
  std::string plain;
  size_t at = 0;
  take_sign(word, at, plain);
  if (!take_digits(word, at, plain) || at != word.size()) return std::nullopt;
  int64_t value = 0;
  const auto result = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

std::optional<double> parse_python_float(const std::string& text) {
  const std::string word = strip(text);
  std::string plain;
  size_t at = 0;
  take_sign(word, at, plain);
  if (is_named_number(word, at)) return std::strtod(word.c_str(), nullptr);
  bool has_digits = take_digits(word, at, plain);
  if (at < word.size() && word[at] == '.') {
    plain += word[at++];
    has_digits |= take_digits(word, at, plain);
  }
  if (!has_digits) return std::nullopt;
  if (at < word.size() && (word[at] == 'e' || word[at] == 'E')) {
    plain += word[at++];
    take_sign(word, at, plain);
    if (!take_digits(word, at, plain)) return std::nullopt;
  }
  if (at != word.size()) return std::nullopt;
  return std::strtod(plain.c_str(), nullptr);
}

std::string format_python_float(double value) {
  std::string text = format_shortest(value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

}  // namespace espalier
