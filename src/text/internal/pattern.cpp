#include "text/internal/pattern.h"

#include <new>

#include "base/error.h"
#include "base/format.h"
#include "text/internal/pcre.h"
#include "text/internal/regex_translation.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

void give_gap(size_t begin, size_t end, const Pattern::Use& use) {
  if (begin < end) use({begin, end, false});
}

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}
  void for_each(std::string_view text, const Use& use) const override {
    size_t done = 0;
    for (size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, done)) {
      give_gap(done, at, use);
      done = at + literal_.size();
      use({at, done, true});
    }
    give_gap(done, text.size(), use);
  }

 private:
  std::string literal_;
};

class CharacterPattern final : public Pattern {
 public:
  CharacterPattern(bool (*matches)(char32_t), bool whole_runs) : matches_(matches), whole_runs_(whole_runs) {}
  void for_each(std::string_view text, const Use& use) const override {
    size_t done = 0, run = 0;  // [run, at) is the run that has not ended yet, if it is not empty
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = decode_utf8(text.data() + at);
      const size_t end = at + static_cast<size_t>(point.num_bytes);
      if (matches_(point.code)) {
        if (run == done) give_gap(done, at, use), run = at;
        if (!whole_runs_) use({at, end, true}), run = end;
        done = end;
      } else if (run < done) {
        use({run, done, true});
        run = done;
      }
      at = end;
    }
    if (run < done) use({run, done, true});
    give_gap(done, text.size(), use);
  }

 private:
  bool (*matches_)(char32_t);
  bool whole_runs_;
};

// What a match needs, one thread's for all patterns: to make it for every text takes longer than to match a short one.
struct MatchRoom {
  MatchData data{pcre2_match_data_create(1, nullptr)};  // where the whole match is; groups are not asked for
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(size_t{32} << 10, size_t{64} << 20, nullptr)};

  MatchRoom() {
    if (!data || !context || !stack) throw std::bad_alloc();
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
  static MatchRoom& of_this_thread() {
    static thread_local MatchRoom room;
    return room;
  }
};

// Of what can be wrong in an expression whose translation succeeded.
std::string describe_compile_error(int error) {
  switch (error) {
    case PCRE2_ERROR_MISSING_CLOSING_PARENTHESIS: return "a parenthesis is not closed";
    case PCRE2_ERROR_UNMATCHED_CLOSING_PARENTHESIS: return "a parenthesis is closed that was not opened";
    case PCRE2_ERROR_MISSING_SQUARE_BRACKET: return "a square bracket is not closed";
    case PCRE2_ERROR_QUANTIFIER_INVALID: return "nothing precedes a quantifier";
    case PCRE2_ERROR_QUANTIFIER_OUT_OF_ORDER: return "the numbers of a quantifier are out of order";
    case PCRE2_ERROR_QUANTIFIER_TOO_BIG: return "the number of a quantifier is over 65,535";
    case PCRE2_ERROR_CLASS_RANGE_ORDER: return "a range in square brackets is out of order";
    case PCRE2_ERROR_LOOKBEHIND_NOT_FIXED_LENGTH: return "what a lookbehind looks for has no fixed length";
    case PCRE2_ERROR_BAD_SUBPATTERN_REFERENCE: return "it refers to a group that it does not have";
    case PCRE2_ERROR_PATTERN_TOO_LARGE:
    case PCRE2_ERROR_HEAP_FAILED: return "it is too large";
    case PCRE2_ERROR_PARENTHESES_NEST_TOO_DEEP: return "its parentheses are nested too deeply";
    default: return concat("error ", error, " of PCRE2");
  }
}

class RegexPattern final : public Pattern {
 public:
  RegexPattern(std::string expression, const std::string& where) : expression_(std::move(expression)), where_(where) {
    const std::string translated = translate_regex(expression_, where);
    const CompileContext context(pcre2_compile_context_create(nullptr));
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF, &error,
                          &offset, context.get());
    if (code_ == nullptr) {
      throw UserError(
          concat(where, ": the regular expression '", expression_, "' has an error: ", describe_compile_error(error)),
          ExitCode::kBadData);
    }
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);  // where the machine has no JIT, matching interprets
  }
  ~RegexPattern() override { pcre2_code_free(code_); }

  // As rust-onig's find_iter: no empty match right after the match before it.
  void for_each(std::string_view text, const Use& use) const override {
    MatchRoom& room = MatchRoom::of_this_thread();
    size_t start = 0, done = 0;
    bool matched_before = false;
    while (start <= text.size()) {
      const int result = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                                     PCRE2_NO_UTF_CHECK, room.data.get(), room.context.get());
      if (result == PCRE2_ERROR_NOMATCH) break;
      if (result < 0) fail(result, text.size());
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(room.data.get());
      const size_t begin = ends[0], end = ends[1];
      if (begin == end && matched_before && end == done) {
        start += start < text.size() ? static_cast<size_t>(decode_utf8(text.data() + start).num_bytes) : 1;
        continue;
      }
      give_gap(done, begin, use);
      use({begin, end, true});
      start = done = end;
      matched_before = true;
    }
    give_gap(done, text.size(), use);
  }

 private:
  [[noreturn]] void fail(int error, size_t num_bytes) const {
    std::string reason = concat("error ", error, " of PCRE2");
    if (error == PCRE2_ERROR_MATCHLIMIT || error == PCRE2_ERROR_HEAPLIMIT || error == PCRE2_ERROR_DEPTHLIMIT)
      reason = "it goes back over the text too often";
    if (error == PCRE2_ERROR_JIT_STACKLIMIT || error == PCRE2_ERROR_NOMEMORY) reason = "it needs too much memory";
    throw UserError(concat(where_, ": the regular expression '", expression_, "' cannot be matched against a text of ",
                           format_count(static_cast<int64_t>(num_bytes)), " bytes: ", reason,
                           ". Break the text into shorter ones."),
                    ExitCode::kBadData);
  }

  std::string expression_, where_;
  pcre2_code* code_ = nullptr;
};

}  // namespace

std::unique_ptr<Pattern> literal_pattern(const std::string& literal) {
  return std::make_unique<LiteralPattern>(literal);
}

std::unique_ptr<Pattern> character_pattern(bool (*matches)(char32_t)) {
  return std::make_unique<CharacterPattern>(matches, false);
}

std::unique_ptr<Pattern> run_pattern(bool (*matches)(char32_t)) {
  return std::make_unique<CharacterPattern>(matches, true);
}

std::unique_ptr<Pattern> regex_pattern(const std::string& expression, const std::string& where) {
  return std::make_unique<RegexPattern>(expression, where);
}

std::unique_ptr<Pattern> make_pattern(const JsonPart& part) {
  if (part.has("Regex")) return regex_pattern(part.text("Regex"), part.where());
  const std::string literal = part.text("String");
  if (literal.empty()) part.fail("an empty 'String' is not supported");
  return literal_pattern(literal);
}

SplitBehavior make_behavior(const JsonPart& part, const char* key) {
  const std::string name = part.text(key);
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  part.fail(
      concat("'", key, "' is '", name, "'; use Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous"));
}

void StretchJoiner::hold(const Stretch& stretch) {
  if (holds_) use_(held_);
  held_ = stretch;
  holds_ = true;
}

// A match joins its neighbour on one side unless that is a match too.
void StretchJoiner::add(const Stretch& stretch) {
  bool joins = false;
  switch (behavior_) {
    case SplitBehavior::kIsolated: return use_(stretch);
    case SplitBehavior::kRemoved:
      if (!stretch.is_match) use_(stretch);
      return;
    case SplitBehavior::kMergedWithPrevious: joins = stretch.is_match && !after_match_; break;
    case SplitBehavior::kMergedWithNext: joins = !stretch.is_match && after_match_; break;
    case SplitBehavior::kContiguous: joins = stretch.is_match == after_match_; break;
  }
  after_match_ = stretch.is_match;
  if (joins && holds_)
    held_.end = stretch.end;
  else
    hold(stretch);
}

void StretchJoiner::finish() {
  if (holds_) use_(held_);
  holds_ = false;
}

}  // namespace espalier::text::internal
