#include "text/internal/sentencepiece_normalizer.h"

#include "text/internal/growth_limit.h"
#include "text/utf8.h"

namespace espalier::text::internal {

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceRules& rules, const PieceTrie* kept)
    : rules_(rules), kept_(kept), blank_(rules.escape_whitespaces ? kVisibleBlank : std::string_view(" ")) {
  for (int code = 0; code < 128; ++code) {
    char bytes[2] = {static_cast<char>(code), 0};
    const bool is_kept_start = kept != nullptr && kept->walk().step(bytes[0]);
    bool plain = code != ' ' && !is_kept_start && rules.chars_map.longest({bytes, 1}).num_bytes == 0;
    for (int next = 0; next < 128 && plain; ++next) {
      bytes[1] = static_cast<char>(next);
      plain = !rules.chars_map.has_prefix({bytes, 2});
    }
    is_plain_[static_cast<size_t>(code)] = plain;
  }
}

SentencePieceNormalizer::Step SentencePieceNormalizer::step(std::string_view text) const {
  if (kept_ != nullptr) {
    const size_t kept = kept_->longest(text);
    if (kept > 0) return {text.substr(0, kept), kept};
  }
  const CharsMap::Match match = rules_.chars_map.longest(text);
  if (match.num_bytes > 0) return {match.replacement, match.num_bytes};
  const auto bytes = static_cast<size_t>(decode_utf8(text.data()).num_bytes);
  return {text.substr(0, bytes), bytes};
}

// How many bytes at the start of `text` are ASCII that is copied as it is.
size_t SentencePieceNormalizer::plain_run(std::string_view text) const {
  size_t run = 0;
  while (run < text.size()) {
    const auto byte = static_cast<uint8_t>(text[run]);
    if (byte >= 0x80 || !is_plain_[byte]) break;
    ++run;
  }
  // A mark that follows may belong to a rule with the last one.
  if (run > 0 && run < text.size() && static_cast<uint8_t>(text[run]) >= 0x80) --run;
  return run;
}

void SentencePieceNormalizer::append(std::string_view text, std::string& normalized) const {
  if (!rules_.escape_whitespaces) {
    normalized += text;
    return;
  }
  for (const char byte : text) {
    if (byte == ' ')
      normalized += kVisibleBlank;
    else
      normalized += byte;
  }
}

void SentencePieceNormalizer::apply(std::string_view text, std::string& normalized) const {
  normalized.clear();
  const bool trims = rules_.remove_extra_whitespaces;
  while (trims && !text.empty()) {
    const Step first = step(text);
    if (first.replacement != " ") break;
    text.remove_prefix(first.num_bytes);
  }
  if (text.empty()) return;
  normalized.reserve(text.size() + text.size() / 2 + 16);
  if (rules_.add_dummy_prefix && !rules_.prefix_is_suffix) normalized += blank_;
  bool after_blank = trims;
  const GrowthLimit limit(rules_.chars_map.where(), text.size());
  while (!text.empty()) {
    const size_t run = plain_run(text);
    if (run > 0) {
      normalized += text.substr(0, run);
      text.remove_prefix(run);
      after_blank = false;
      continue;
    }
    Step next = step(text);
    while (after_blank && !next.replacement.empty() && next.replacement[0] == ' ') next.replacement.remove_prefix(1);
    if (!next.replacement.empty()) {
      append(next.replacement, normalized);
      after_blank = trims && next.replacement.back() == ' ';
    }
    text.remove_prefix(next.num_bytes);
    limit.check(normalized.size());
  }
  while (trims && normalized.size() >= blank_.size() &&
         normalized.compare(normalized.size() - blank_.size(), blank_.size(), blank_) == 0) {
    normalized.resize(normalized.size() - blank_.size());
  }
  if (rules_.add_dummy_prefix && rules_.prefix_is_suffix) normalized += blank_;
}

}  // namespace espalier::text::internal
