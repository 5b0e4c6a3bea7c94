#include "text/python_regex.h"

#include <functional>

#include "base/error.h"
#include "base/format.h"
#include "text/internal/pcre.h"
#include "text/utf8.h"

namespace espalier::text::python {
namespace {

constexpr uint32_t kMostSteps = 10'000'000;  // of one search

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_octal_digit(char c) { return c >= '0' && c <= '7'; }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hexadecimal(char c) { return is_decimal(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// Python's expression as PCRE2's.
class Translator {
 public:
  Translator(std::string_view source, const std::string& where) : source_(source), where_(where) {}

  std::string translate() {
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (c == '\\')
        escape();
      else if (in_class_)
        class_character(c);
      else if (c == '[')
        open_class();
      else if (c == '(')
        group();
      else if (source_.substr(at_).starts_with("{,"))
        open_quantifier();
      else
        made_ += source_[at_++];
    }
    return std::move(made_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw UserError(concat(where_, ": the regular expression '", std::string(source_), "': ", parts...),
                    ExitCode::kBadData);
  }
  char peek(size_t ahead) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void class_character(char c) {
    if (c == ']') in_class_ = false;
    if (c == '[') made_ += '\\';  // to PCRE2 [: may begin a POSIX class
    made_ += c;
    ++at_;
  }

  void open_class() {
    made_ += source_[at_++];
    in_class_ = true;
    if (peek(0) == '^') made_ += source_[at_++];
    if (peek(0) != ']') return;  // the first stands for itself
    made_ += "\\]";
    ++at_;
  }

  // {,n} has no lower bound.
  void open_quantifier() {
    size_t end = at_ + 2;
    while (end < source_.size() && is_decimal(source_[end])) ++end;
    const bool is_quantifier = end < source_.size() && source_[end] == '}';
    made_ += is_quantifier ? "{0," : "\\{,";
    at_ += 2;
  }

  void group() {
    if (peek(1) == '*') refuse("nothing precedes the quantifier after a parenthesis");
    if (peek(1) == '?') check_group();
    made_ += source_[at_++];
  }
  void check_group() const {
    const std::string_view kind = source_.substr(at_ + 2);
    for (const char* const known : {":", "=", "!", "#", ">", "<=", "<!", "P<", "P=", "("})
      if (kind.starts_with(known)) return;
    const size_t end = kind.find_first_not_of("ims-");
    if (end == 0 || end == std::string_view::npos || (kind[end] != ':' && kind[end] != ')'))
      refuse("(?", std::string(kind.substr(0, 4)), " is not supported");
    if (kind[end] == ')' && at_ != 0) refuse("flags for all of it are not at its start");
  }

  void escape() {
    if (at_ + 1 == source_.size()) refuse("ends with a backslash");
    const char c = peek(1);
    if (is_decimal(c)) return numbered(c);
    at_ += 2;
    switch (c) {
      case 's': made_ += in_class_ ? "\\s\\x1c-\\x1f" : "[\\s\\x1c-\\x1f]"; return;
      case 'S': made_ += in_class_ ? "\\S" : "[^\\s\\x1c-\\x1f]"; return;
      case 'v': made_ += "\\x0b"; return;
      case 'x': return code_point(2);
      case 'u': return code_point(4);
      case 'U': return code_point(8);
      case 'Z':
      case 'A':
      case 'B':
        if (in_class_) break;
        made_ += c == 'Z' ? "\\z" : concat("\\", c);
        return;
      case 'a':
      case 'b':
      case 'd':
      case 'D':
      case 'f':
      case 'n':
      case 'r':
      case 't':
      case 'w':
      case 'W': made_ += concat("\\", c); return;
      default:
        if (is_ascii_letter(c)) break;
        made_ += static_cast<uint8_t>(c) < 0x80 ? concat("\\", c) : std::string(1, c);
        return;
    }
    refuse("bad escape \\", c);
  }

  // An octal number, or what a group has matched.
  void numbered(char first) {
    ++at_;
    const bool is_three_octal = is_octal_digit(first) && is_octal_digit(peek(1)) && is_octal_digit(peek(2));
    if (first == '0' || is_three_octal) {
      int code = 0;
      for (int i = 0; i < 3 && is_octal_digit(peek(0)); ++i) code = 8 * code + (source_[at_++] - '0');
      made_ += format_printf("\\x{%x}", static_cast<unsigned>(code));
      return;
    }
    if (in_class_) refuse("bad escape \\", first);
    const size_t size = is_decimal(peek(1)) ? 2 : 1;
    made_ += concat("\\g{", std::string(source_.substr(at_, size)), "}");
    at_ += size;
  }

  void code_point(size_t num_digits) {
    for (size_t i = 0; i < num_digits; ++i)
      if (!is_hexadecimal(peek(i))) refuse("an escape with too few hexadecimal digits");
    made_ += concat("\\x{", std::string(source_.substr(at_, num_digits)), "}");
    at_ += num_digits;
  }

  std::string_view source_;
  const std::string& where_;
  std::string made_;
  size_t at_ = 0;
  bool in_class_ = false;
};

using internal::CompileContext;
using internal::MatchContext;
using internal::MatchData;

}  // namespace

struct Regex::Code {
  std::string expression, where;
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }

  using Use = std::function<void(const size_t* places, size_t num_groups)>;
  // As Python's scanner: a match may be empty right after another, but not where an empty one was.
  void for_each(std::string_view text, const Use& use) const {
    const MatchData data(pcre2_match_data_create_from_pattern(code, nullptr));
    const MatchContext context(pcre2_match_context_create(nullptr));
    if (!data || !context) throw std::bad_alloc();
    pcre2_set_match_limit(context.get(), kMostSteps);
    uint32_t num_groups = 0, options = 0;
    pcre2_pattern_info(code, PCRE2_INFO_CAPTURECOUNT, &num_groups);
    for (size_t at = 0; at <= text.size();) {
      const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                    PCRE2_NO_UTF_CHECK | options, data.get(), context.get());
      if (found == PCRE2_ERROR_NOMATCH) return;
      if (found < 0)
        throw UserError(
            concat(where, ": the regular expression '", expression, "' cannot be matched against a text ", "of ",
                   format_count(static_cast<int64_t>(text.size())), " bytes: error ", found, " of PCRE2"),
            ExitCode::kBadData);
      const size_t* const places = pcre2_get_ovector_pointer(data.get());
      use(places, num_groups);
      options = places[0] == places[1] ? PCRE2_NOTEMPTY_ATSTART : 0;
      at = places[1];
    }
  }
};

Regex::Regex(std::string expression, std::string where) : code_(std::make_unique<Code>()) {
  code_->expression = std::move(expression);
  code_->where = std::move(where);
  if (valid_utf8_prefix(code_->expression) != code_->expression.size())
    throw UserError(concat(code_->where, ": a regular expression is not UTF-8"), ExitCode::kBadData);
  const std::string translated = Translator(code_->expression, code_->where).translate();
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (code_->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    throw UserError(concat(code_->where, ": the regular expression '", code_->expression,
                           "': ", reinterpret_cast<const char*>(message)),
                    ExitCode::kBadData);
  }
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);  // where there is no compiler, it is only slower
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

std::vector<std::vector<std::string>> Regex::find_all(std::string_view text) const {
  std::vector<std::vector<std::string>> matches;
  code_->for_each(text, [&](const size_t* places, size_t num_groups) {
    std::vector<std::string>& groups = matches.emplace_back();
    for (size_t group = num_groups == 0 ? 0 : 1; group <= num_groups; ++group) {
      const size_t begin = places[2 * group], end = places[2 * group + 1];
      groups.emplace_back(begin == PCRE2_UNSET ? std::string_view() : text.substr(begin, end - begin));
    }
  });
  return matches;
}

std::string Regex::remove_all(std::string_view text) const {
  std::string kept;
  size_t done = 0;
  code_->for_each(text, [&](const size_t* places, size_t) {
    kept += text.substr(done, places[0] - done);
    done = places[1];
  });
  return kept += text.substr(done);
}

std::string escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c != '\0' && std::string_view("()[]{}?*+-|^$\\.&~# \t\n\r\v\f").find(c) != std::string_view::npos)
      escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace espalier::text::python
