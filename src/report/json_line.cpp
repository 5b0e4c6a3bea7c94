#include "report/json_line.h"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

namespace espalier::report {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Reads forward over one line.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool take(char wanted) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  bool at_end() {
    skip_blanks();
    return at_ == text_.size();
  }
  // With its quotes; empty where there is none that ends.
  std::string_view string() {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != '"') return {};
    for (size_t end = at_ + 1; end < text_.size(); ++end) {
      if (text_[end] == '\\') {
        ++end;
      } else if (text_[end] == '"') {
        const std::string_view found = text_.substr(at_, end + 1 - at_);
        at_ = end + 1;
        return found;
      }
    }
    return {};
  }
  std::string_view value() {
    skip_blanks();
    if (at_ >= text_.size()) return {};
    if (text_[at_] == '"') return string();
    return text_[at_] == '{' || text_[at_] == '[' ? nested() : word();
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }
  std::string_view word() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '}' && !is_blank(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::string_view nested() {
    const size_t begin = at_;
    for (int depth = 0; at_ < text_.size();) {
      if (text_[at_] == '"') {
        if (string().empty()) return {};
        continue;
      }
      const char c = text_[at_++];
      depth += (c == '{' || c == '[') - (c == '}' || c == ']');
      if (depth == 0) return text_.substr(begin, at_ - begin);
    }
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool for_each_member(std::string_view line,
                     const std::function<void(std::string_view key, std::string_view value)>& visit) {
  Scanner scanner(line);
  if (!scanner.take('{')) return false;
  if (scanner.take('}')) return scanner.at_end();
  do {
    const std::string_view key = scanner.string();
    if (key.empty() || !scanner.take(':')) return false;
    const std::string_view value = scanner.value();
    if (value.empty()) return false;
    visit(key.substr(1, key.size() - 2), value);
  } while (scanner.take(','));
  return scanner.take('}') && scanner.at_end();
}

double number_of(std::string_view value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() && end == value.data() + value.size() ? number : std::numeric_limits<double>::quiet_NaN();
}

std::string text_of(std::string_view value) {
  const auto parsed = nlohmann::json::parse(value, nullptr, /*allow_exceptions=*/false);
  return parsed.is_string() ? parsed.get<std::string>() : "";
}

}  // namespace espalier::report
