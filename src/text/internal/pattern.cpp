#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/internal/pattern.h"

#include <pcre2.h>

#include "base/error.h"
#include "text/internal/regex_translation.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

void add_gap(size_t begin, size_t end, std::vector<Stretch>& stretches) {
  if (begin < end) stretches.push_back({begin, end, false});
}

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}
  void find(std::string_view text, std::vector<Stretch>& stretches) const override {
    size_t done = 0;
    for (size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, done)) {
      add_gap(done, at, stretches);
      done = at + literal_.size();
      stretches.push_back({at, done, true});
    }
    add_gap(done, text.size(), stretches);
  }

 private:
  std::string literal_;
};

class CharacterPattern final : public Pattern {
 public:
  CharacterPattern(bool (*matches)(char32_t), bool whole_runs) : matches_(matches), whole_runs_(whole_runs) {}
  void find(std::string_view text, std::vector<Stretch>& stretches) const override {
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = decode_utf8(text.data() + at);
      const size_t end = at + static_cast<size_t>(point.num_bytes);
      if (matches_(point.code)) {
        add_gap(done, at, stretches);
        const bool joins = whole_runs_ && !stretches.empty() && stretches.back().is_match && stretches.back().end == at;
        if (joins)
          stretches.back().end = end;
        else
          stretches.push_back({at, end, true});
        done = end;
      }
      at = end;
    }
    add_gap(done, text.size(), stretches);
  }

 private:
  bool (*matches_)(char32_t);
  bool whole_runs_;
};

template <auto release>
struct Releaser {
  template <class T>
  void operator()(T* pointer) const {
    release(pointer);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Releaser<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Releaser<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Releaser<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Releaser<pcre2_jit_stack_free>>;

std::string pcre2_message(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
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
          concat(where, ": the regular expression '", expression_, "' has an error: ", pcre2_message(error)),
          ExitCode::kBadData);
    }
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);  // where the machine has no JIT, matching interprets
  }
  ~RegexPattern() override { pcre2_code_free(code_); }

  // As rust-onig's find_iter: no empty match right behind the match before it.
  void find(std::string_view text, std::vector<Stretch>& stretches) const override {
    const MatchData data(pcre2_match_data_create_from_pattern(code_, nullptr));
    const MatchContext context(pcre2_match_context_create(nullptr));
    const JitStack stack(pcre2_jit_stack_create(size_t{32} << 10, size_t{64} << 20, nullptr));
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    size_t start = 0, done = 0;
    bool matched_before = false;
    while (start <= text.size()) {
      const int result = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                                     PCRE2_NO_UTF_CHECK, data.get(), context.get());
      if (result == PCRE2_ERROR_NOMATCH) break;
      if (result < 0) {
        throw UserError(concat(where_, ": matching the regular expression '", expression_, "' against a text of ",
                               text.size(), " bytes failed: ", pcre2_message(result)));
      }
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
      const size_t begin = ends[0], end = ends[1];
      if (begin == end && matched_before && end == done) {
        start += start < text.size() ? static_cast<size_t>(decode_utf8(text.data() + start).num_bytes) : 1;
        continue;
      }
      add_gap(done, begin, stretches);
      stretches.push_back({begin, end, true});
      start = done = end;
      matched_before = true;
    }
    add_gap(done, text.size(), stretches);
  }

 private:
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

namespace {

// A match joins its neighbour on one side unless that is a match too.
std::vector<Stretch> merge_with_previous(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> kept;
  bool after_match = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.is_match && !after_match && !kept.empty())
      kept.back().end = stretch.end;
    else
      kept.push_back(stretch);
    after_match = stretch.is_match;
  }
  return kept;
}

std::vector<Stretch> merge_with_next(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> kept;  // from the last to the first
  bool before_match = false;
  for (auto stretch = stretches.rbegin(); stretch != stretches.rend(); ++stretch) {
    if (stretch->is_match && !before_match && !kept.empty())
      kept.back().begin = stretch->begin;
    else
      kept.push_back(*stretch);
    before_match = stretch->is_match;
  }
  return {kept.rbegin(), kept.rend()};
}

std::vector<Stretch> join_equal(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> kept;
  bool after_match = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.is_match == after_match && !kept.empty())
      kept.back().end = stretch.end;
    else
      kept.push_back(stretch);
    after_match = stretch.is_match;
  }
  return kept;
}

}  // namespace

std::vector<Stretch> apply_behavior(SplitBehavior behavior, const std::vector<Stretch>& stretches) {
  switch (behavior) {
    case SplitBehavior::kIsolated: return stretches;
    case SplitBehavior::kMergedWithPrevious: return merge_with_previous(stretches);
    case SplitBehavior::kMergedWithNext: return merge_with_next(stretches);
    case SplitBehavior::kContiguous: return join_equal(stretches);
    case SplitBehavior::kRemoved: break;
  }
  std::vector<Stretch> kept;
  for (const Stretch& stretch : stretches) {
    if (!stretch.is_match) kept.push_back(stretch);
  }
  return kept;
}

}  // namespace espalier::text::internal
