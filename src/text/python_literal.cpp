#include "text/python_literal.h"

#include <charconv>

#include "base/error.h"
#include "text/python_text.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::text::python {
namespace {

constexpr int kDeepestLiteral = 32;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  Json read_all() {
    Json value = read_value(0);
    skip_blanks();
    if (at_ < text_.size()) fail("the end");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    throw UserError(concat("expected ", wanted, " at byte ", at_ + 1, " of the literal ", text_.substr(0, 80)),
                    ExitCode::kBadData);
  }
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\n\r\f").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(std::string_view word) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Json read_value(int depth) {
    if (depth > kDeepestLiteral) fail("less nesting");
    skip_blanks();
    if (take("[")) return read_list("]", depth);
    if (take("(")) return read_tuple(depth);
    if (take("{")) return read_dict(depth);
    if (next() == '\'' || next() == '"') return read_strings();
    for (const auto& [word, value] : {std::pair{"None", Json()}, {"True", Json(true)}, {"False", Json(false)}})
      if (take(word)) return value;
    return read_number();
  }

  Json read_list(const char* end, int depth) {
    Json list = Json::array();
    while (!take(end)) {
      list.push_back(read_value(depth + 1));
      if (!take(",") && !text_.substr(at_).starts_with(end)) fail(concat(", or ", end));
    }
    return list;
  }
  // One value in brackets is that value, unless a comma follows it.
  Json read_tuple(int depth) {
    const size_t begin = at_;
    Json list = read_list(")", depth);
    if (list.size() != 1) return list;
    const std::string_view inside = strip_right(text_.substr(begin, at_ - 1 - begin));
    return inside.ends_with(',') ? list : list[0];
  }
  Json read_dict(int depth) {
    Json dict = Json::object();
    while (!take("}")) {
      skip_blanks();
      if (next() != '\'' && next() != '"') fail("a string for a key");
      const std::string key = read_strings();
      if (!take(":")) fail(":");
      dict[key] = read_value(depth + 1);
      if (!take(",") && next() != '}') fail(", or }");
    }
    return dict;
  }

  // Strings that follow each other are one.
  std::string read_strings() {
    std::string value;
    do {
      read_string(value);
      skip_blanks();
    } while (next() == '\'' || next() == '"');
    return value;
  }
  void read_string(std::string& value) {
    const char quote = next();
    const std::string three(3, quote);
    const bool is_long = text_.substr(at_).starts_with(three);
    const std::string end = is_long ? three : std::string(1, quote);
    at_ += end.size();
    while (!text_.substr(at_).starts_with(end)) {
      if (at_ >= text_.size() || (!is_long && next() == '\n')) fail(end);
      if (next() == '\\')
        read_escape(value);
      else if (next() == '\r') {  // line ends become line feeds
        value += '\n';
        at_ += text_.substr(at_).starts_with("\r\n") ? 2 : 1;
      } else {
        value += text_[at_++];
      }
    }
    at_ += end.size();
  }
  void read_escape(std::string& value) {
    static constexpr std::string_view kNames = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
    ++at_;
    const char name = next();
    if (at_ >= text_.size()) fail("a character after \\");
    if (const size_t place = kNames.find(name); place != std::string_view::npos) {
      value += kValues[place];
      ++at_;
    } else if (name == '\n') {
      ++at_;
    } else if (name >= '0' && name <= '7') {
      read_code(value, 8, 1, 3);
    } else if (name == 'x' || name == 'u' || name == 'U') {
      ++at_;
      const size_t count = name == 'x' ? 2 : name == 'u' ? 4 : 8;
      read_code(value, 16, count, count);
    } else if (name == 'N') {
      fail("no character by name");
    } else {
      value += '\\';  // no escape: both stay
    }
  }
  void read_code(std::string& value, int base, size_t least, size_t most) {
    uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, most);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    const auto count = static_cast<size_t>(read.ptr - digits.data());
    if (count < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("the digits of a character");
    text::append_utf8(static_cast<char32_t>(code), value);
    at_ += count;
  }

  Json read_number() {
    const size_t begin = at_;
    const bool has_plus = next() == '+';
    if (has_plus || next() == '-') ++at_;
    const size_t digits = at_;
    bool is_decimal = false;
    while (is_digit(next()) || next() == '.' || next() == 'e' || next() == 'E' ||
           ((next() == '-' || next() == '+') && at_ > digits && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E'))) {
      is_decimal = is_decimal || !is_digit(next());
      ++at_;
    }
    const std::string_view number = text_.substr(begin + has_plus, at_ - begin - has_plus);
    const char *first = number.data(), *last = first + number.size();
    int64_t whole = 0;
    double decimal = 0;
    const bool has_leading_zero = at_ - digits > 1 && text_[digits] == '0' && !is_decimal &&
                                  text_.substr(digits, at_ - digits).find_first_not_of('0') != std::string_view::npos;
    if (digits < at_ && !is_decimal && !has_leading_zero) {
      if (const auto read = std::from_chars(first, last, whole); read.ec == std::errc() && read.ptr == last)
        return whole;
    } else if (digits < at_ && is_decimal) {
      if (const auto read = std::from_chars(first, last, decimal); read.ec == std::errc() && read.ptr == last)
        return decimal;
    }
    at_ = begin;
    fail("a value");
  }

  std::string_view text_;
  size_t at_ = 0;
};

bool is_printable(char32_t code) {
  using text::Category;
  const Category category = text::category(code);
  if (code == ' ') return true;
  return category != Category::kUnassigned && !text::is_between(category, Category::kSpace, Category::kPrivateUse);
}

void append_quoted(std::string& out, char32_t code, char quote) {
  static constexpr std::string_view kNames = "ntr\\", kValues = "\n\t\r\\";
  if (const size_t place = code < 0x80 ? kValues.find(static_cast<char>(code)) : std::string_view::npos;
      place != std::string_view::npos) {
    (out += '\\') += kNames[place];
  } else if (code == static_cast<char32_t>(quote)) {
    (out += '\\') += quote;
  } else if (is_printable(code)) {
    text::append_utf8(code, out);
  } else {
    char digits[16];
    const char* const format = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
    std::snprintf(digits, sizeof(digits), format, static_cast<unsigned>(code));
    out += digits;
  }
}

std::string repr_of_text(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos, has_double = text.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char32_t code : text::to_utf32(text)) append_quoted(out, code, quote);
  return out + quote;
}

}  // namespace

Json parse_literal(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  return LiteralReader(text).read_all();
}

std::string python_repr(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "None";
    case Json::value_t::boolean: return value.get<bool>() ? "True" : "False";
    case Json::value_t::string: return repr_of_text(value.get_ref<const std::string&>());
    case Json::value_t::number_float: return repr(value.get<double>());
    case Json::value_t::array: {
      std::string text;
      for (const Json& entry : value) text += (text.empty() ? "" : ", ") + python_repr(entry);
      return "[" + text + "]";
    }
    case Json::value_t::object: {
      std::string text;
      for (const auto& [key, entry] : value.items())
        text += (text.empty() ? "" : ", ") + repr_of_text(key) + ": " + python_repr(entry);
      return "{" + text + "}";
    }
    default: return value.dump();
  }
}

std::string python_str(const Json& value) { return value.is_string() ? value.get<std::string>() : python_repr(value); }

}  // namespace espalier::text::python
