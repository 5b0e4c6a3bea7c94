#include "curate/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

namespace espalier::curate {
namespace {

constexpr uint32_t kMostSteps = 5'000'000;  // of one search

struct MatchData {
  pcre2_match_data* data;
  pcre2_match_context* context;
  explicit MatchData(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)), context(pcre2_match_context_create(nullptr)) {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_set_match_limit(context, kMostSteps);
  }
  ~MatchData() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  MatchData(const MatchData&) = delete;
  MatchData& operator=(const MatchData&) = delete;
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& expression, bool multiline, Anchor anchor) : code_(std::make_unique<Code>()) {
  int error = 0;
  size_t where = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | (multiline ? PCRE2_MULTILINE : 0) |
                           (anchor == Anchor::kStart ? PCRE2_ANCHORED : 0);
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), options, &error,
                              &where, nullptr);
  ESPALIER_CHECK(code_->code != nullptr, "error ", error, " at ", where, " of ", expression);
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);  // where there is no compiler, it is only slower
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

bool Regex::for_each(std::string_view text, const std::function<void(const Match&)>& use) const {
  MatchData match(code_->code);
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at <= text.size();) {
    const int count = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match.data, match.context);
    if (count == PCRE2_ERROR_NOMATCH) return true;
    if (count < 0) return false;
    const size_t* const places = pcre2_get_ovector_pointer(match.data);
    const bool has_group = count > 1 && places[2] != PCRE2_UNSET;
    use({places[0], places[1], has_group ? places[2] : places[1], has_group ? places[3] : places[1]});
    at = places[1];
    if (places[0] != places[1]) continue;
    // An empty match: continue after the next character.
    for (++at; at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80;) ++at;
  }
  return true;
}

bool Regex::matches(std::string_view text) const {
  bool found = false;
  for_each(text, [&found](const Match&) { found = true; });
  return found;
}

}  // namespace espalier::curate
