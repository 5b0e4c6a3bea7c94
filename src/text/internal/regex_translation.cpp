#include "text/internal/regex_translation.h"

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "text/internal/code_set.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

constexpr int kDeepestClass = 100;  // far beyond what people write; each level is one of recursion

bool is_hex_digit(char32_t code) {
  return (code >= '0' && code <= '9') || (code >= 'a' && code <= 'f') || (code >= 'A' && code <= 'F');
}

bool is_decimal(char32_t code) { return category(code) == Category::kDecimalNumber; }

std::string literal(char32_t code) {
  const bool plain = code < 0x80 && (is_letter(code) || (code >= '0' && code <= '9'));
  return plain ? std::string(1, static_cast<char>(code)) : format_printf("\\x{%X}", static_cast<unsigned>(code));
}

// Reads the expression once, writing PCRE2's as it goes.
class Translator {
 public:
  Translator(std::string_view expression, const std::string& where)
      : expression_(expression), codes_(to_utf32(expression)), where_(where) {}

  std::string run() {
    while (at_ < codes_.size()) step();
    if (!groups_.empty()) refuse("a '(' without its ')'");
    return std::move(output_);
  }

 private:
  // One code point or a set of them, as an escape or a member of a class means it.
  struct Item {
    std::optional<char32_t> code;
    CodeSet set;
  };

  [[noreturn]] void refuse(const std::string& what) const {
    constexpr size_t kMostShown = 300;
    const std::string_view more = expression_.size() > kMostShown ? "..." : "";
    throw UserError(concat(where_, ": ", what, " is not supported in the regular expression '",
                           expression_.substr(0, kMostShown), more, "'"),
                    ExitCode::kBadData);
  }

  bool looking_at(std::u32string_view text) const {
    return std::u32string_view(codes_).substr(at_, text.size()) == text;
  }

  void step() {
    const char32_t code = codes_[at_];
    switch (code) {
      case '\\': return escape();
      case '[': return bracketed_class();
      case '(': return open_group();
      case ')':
        if (groups_.empty()) refuse("a ')' without its '('");
        any_case_ = groups_.back();
        groups_.pop_back();
        output_ += ')';
        ++at_;
        return;
      case '^':
        output_ += "(?m:^)";
        ++at_;
        return;
      case '$':
        output_ += "(?m:$)";
        ++at_;
        return;
      case '*':
      case '+':
      case '?':
      case '|':
      case '.':
        output_ += static_cast<char>(code);
        ++at_;
        return;
      case '{': return interval();
      default:
        if (any_case_ && code >= 0x80) refuse("a letter beyond ASCII inside (?i)");
        output_ += literal(code);
        ++at_;
    }
  }

  void open_group() {
    groups_.push_back(any_case_);
    static constexpr std::u32string_view kKept[] = {U"(?:", U"(?=", U"(?!", U"(?<=", U"(?<!", U"(?>"};
    for (const std::u32string_view kept : kKept) {
      if (!looking_at(kept)) continue;
      for (const char32_t code : kept) output_ += static_cast<char>(code);
      at_ += kept.size();
      return;
    }
    if (looking_at(U"(?i:") || looking_at(U"(?i)")) {
      any_case_ = true;
      const bool whole_rest = codes_[at_ + 3] == ')';
      if (whole_rest && at_ > 0) refuse("'(?i)' after the start");
      output_ += whole_rest ? "(?i)" : "(?i:";
      at_ += 4;
      if (whole_rest) groups_.pop_back();
      return;
    }
    if (looking_at(U"(?")) refuse("'(?" + next_as_text(2) + "'");
    output_ += '(';
    ++at_;
  }

  std::string next_as_text(size_t ahead) const {
    std::string text;
    if (at_ + ahead < codes_.size()) append_utf8(codes_[at_ + ahead], text);
    return text;
  }

  // {n} {n,} {n,m} {,m}; any other '{' is itself.
  void interval() {
    size_t next = at_ + 1;
    std::string low, high;
    while (next < codes_.size() && codes_[next] >= '0' && codes_[next] <= '9') low += static_cast<char>(codes_[next++]);
    const bool comma = next < codes_.size() && codes_[next] == ',';
    if (comma) ++next;
    while (comma && next < codes_.size() && codes_[next] >= '0' && codes_[next] <= '9') {
      high += static_cast<char>(codes_[next++]);
    }
    if (next >= codes_.size() || codes_[next] != '}' || (low.empty() && high.empty())) {
      output_ += "\\{";
      ++at_;
      return;
    }
    at_ = next + 1;
    if (at_ < codes_.size() && codes_[at_] == '+') refuse("'+' after '{n,m}' (no possessive repeat in Oniguruma)");
    if (!comma && at_ < codes_.size() && codes_[at_] == '?') refuse("'?' after '{n}'");
    output_ += "{" + (low.empty() ? "0" : low) + (comma ? "," : "") + high + "}";
  }

  void escape() {
    if (at_ + 1 >= codes_.size()) refuse("a '\\' at the end");
    const char32_t letter = codes_[at_ + 1];
    if (letter == 'A' || letter == 'z' || letter == 'Z') {
      output_ += '\\';
      output_ += static_cast<char>(letter);
      at_ += 2;
      return;
    }
    if (letter == 'b' || letter == 'B') {
      const std::string word = CodeSet::where(is_word).to_class();
      const std::string same = concat("(?:(?<=", word, ")(?=", word, ")|(?<!", word, ")(?!", word, "))");
      const std::string edge = concat("(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))");
      output_ += letter == 'b' ? edge : same;
      at_ += 2;
      return;
    }
    const Item item = escaped_item();
    if (item.code) {
      if (any_case_ && *item.code >= 0x80) refuse("a letter beyond ASCII inside (?i)");
      output_ += literal(*item.code);
    } else {
      if (any_case_) refuse("a class of characters inside (?i)");
      output_ += item.set.to_class();
    }
  }

  // What a backslash and its followers mean, in a class or out of one.
  Item escaped_item() {
    const char32_t letter = codes_.at(at_ + 1);
    at_ += 2;
    switch (letter) {
      case 's': return {std::nullopt, CodeSet::where(is_white_space)};
      case 'S': return {std::nullopt, CodeSet::where(is_white_space).complement()};
      case 'w': return {std::nullopt, CodeSet::where(is_word)};
      case 'W': return {std::nullopt, CodeSet::where(is_word).complement()};
      case 'd': return {std::nullopt, CodeSet::where(is_decimal)};
      case 'D': return {std::nullopt, CodeSet::where(is_decimal).complement()};
      case 'h': return {std::nullopt, CodeSet::where(is_hex_digit)};
      case 'H': return {std::nullopt, CodeSet::where(is_hex_digit).complement()};
      case 'p': return {std::nullopt, property()};
      case 'P': return {std::nullopt, property().complement()};
      case 'n': return {U'\n', {}};
      case 'r': return {U'\r', {}};
      case 't': return {U'\t', {}};
      case 'f': return {U'\f', {}};
      case 'v': return {U'\v', {}};
      case 'a': return {U'\a', {}};
      case 'e': return {U'\x1B', {}};
      case 'x': return {hexadecimal(2), {}};
      case 'u': return {hexadecimal(4), {}};
      default: break;
    }
    if (letter < 0x80 && (is_letter(letter) || (letter >= '0' && letter <= '9'))) {
      refuse(concat("'\\", static_cast<char>(letter), "'"));
    }
    return {letter, {}};
  }

  // After \x or \u: that many digits, or {digits}.
  char32_t hexadecimal(size_t digits) {
    const bool braces = at_ < codes_.size() && codes_[at_] == '{';
    if (braces) ++at_;
    char32_t value = 0;
    size_t count = 0;
    while (at_ < codes_.size() && is_hex_digit(codes_[at_]) && (braces ? count < 8 : count < digits)) {
      const char32_t digit = codes_[at_++];
      value = value * 16 + (digit <= '9' ? digit - '0' : (digit | 32) - 'a' + 10);
      ++count;
    }
    if (braces && (at_ >= codes_.size() || codes_[at_++] != '}')) refuse("a '\\x{' without its '}'");
    if (count == 0 || (!braces && count < digits) || value > 0x10FFFF) refuse("this form of '\\x' or '\\u'");
    if (!braces && digits == 2 && value >= 0x80) refuse("a single byte beyond 7F");
    return value;
  }

  // After \p or \P: {Name} or {^Name}.
  CodeSet property() {
    if (at_ >= codes_.size() || codes_[at_] != '{') refuse("'\\p' without a name in braces");
    ++at_;
    const bool negated = at_ < codes_.size() && codes_[at_] == '^';
    if (negated) ++at_;
    std::string name;
    while (at_ < codes_.size() && codes_[at_] != '}') append_utf8(codes_[at_++], name);
    if (at_ >= codes_.size()) refuse("a '\\p{' without its '}'");
    ++at_;
    const std::optional<CodeSet> set = CodeSet::of_property(name);
    if (!set) refuse("'\\p{" + name + "}' (only general categories are)");
    return negated ? set->complement() : *set;
  }

  void bracketed_class() {
    const size_t begin = at_;
    const CodeSet set = class_set();
    if (any_case_) {
      const CodeSet ascii = CodeSet::where([](char32_t code) { return code < 0x80; });
      const bool plain = codes_[begin + 1] != '^' && set.intersection(ascii.complement()).to_class() == "(*FAIL)";
      if (!plain) refuse("a class that is negated or goes beyond ASCII inside (?i)");
    }
    output_ += set.to_class();
  }

  // From '[' to its ']'.
  CodeSet class_set() {
    ++at_;
    const bool negated = at_ < codes_.size() && codes_[at_] == '^';
    if (negated) ++at_;
    if (at_ < codes_.size() && codes_[at_] == ']') refuse("a class that begins with ']'");
    CodeSet set = class_members();
    ++at_;
    return negated ? set.complement() : set;
  }

  // Up to the ']' that ends the class. What follows && is one level deeper.
  CodeSet class_members() {
    if (++class_depth_ > kDeepestClass) refuse(concat("a class nested more than ", kDeepestClass, " deep"));
    CodeSet set = unchecked_class_members();
    --class_depth_;
    return set;
  }

  CodeSet unchecked_class_members() {
    CodeSet set;
    while (true) {
      if (at_ >= codes_.size()) refuse("a '[' without its ']'");
      if (codes_[at_] == ']') return set;
      if (looking_at(U"&&")) {
        at_ += 2;
        return set.intersection(class_members());
      }
      if (looking_at(U"[:")) refuse("a POSIX bracket");
      if (codes_[at_] == '[') {
        set.add(class_set());
        continue;
      }
      const Item first = member();
      const bool range = at_ + 1 < codes_.size() && codes_[at_] == '-' && codes_[at_ + 1] != ']';
      if (!range) {
        if (first.code)
          set.add(*first.code, *first.code);
        else
          set.add(first.set);
        continue;
      }
      ++at_;
      const Item last = codes_[at_] == '[' ? Item{} : member();
      if (!first.code || !last.code || *last.code < *first.code) refuse("this '-' in a class");
      set.add(*first.code, *last.code);
    }
  }

  Item member() {
    if (codes_[at_] != '\\') return {codes_[at_++], {}};
    if (at_ + 1 >= codes_.size()) refuse("a '\\' at the end");
    if (codes_[at_ + 1] == 'b') {  // a backspace inside a class
      at_ += 2;
      return {U'\b', {}};
    }
    return escaped_item();
  }

  std::string_view expression_;
  std::u32string codes_;
  const std::string& where_;
  size_t at_ = 0;
  int class_depth_ = 0;
  std::vector<bool> groups_;  // of each open group: whether case was ignored before it
  bool any_case_ = false;
  std::string output_;
};

}  // namespace

std::string translate_regex(std::string_view expression, const std::string& where) {
  return Translator(expression, where).run();
}

}  // namespace espalier::text::internal
