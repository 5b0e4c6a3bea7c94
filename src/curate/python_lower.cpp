#include "curate/python_lower.h"

#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2, kDottedI = 0x130, kDotAbove = 0x307;

bool is_cased(char32_t code) {
  const text::Category category = text::category(code);
  return text::is_between(category, text::Category::kUppercase, text::Category::kTitlecase) || code == 0xAA ||
         code == 0xBA;
}

// Unicode's Case_Ignorable.
bool is_passed_over(char32_t code) {
  switch (text::category(code)) {
    case text::Category::kNonspacingMark:
    case text::Category::kEnclosingMark:
    case text::Category::kFormat:
    case text::Category::kModifierLetter:
    case text::Category::kModifierSymbol: return true;
    default: break;
  }
  for (const char32_t mark : {0x27, 0x2E, 0x3A, 0xB7, 0x387, 0x55F, 0x5F4, 0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                              0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A})
    if (code == mark) return true;
  return false;
}

// A letter before it and none after it, whatever is passed over between.
bool ends_word(std::string_view text, size_t at, int num_bytes) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  bool letter_before = false;
  for (const char* before = begin + at; before > begin;) {
    before = text::previous_utf8(before);
    const char32_t code = text::decode_utf8(before).code;
    if (is_passed_over(code)) continue;
    letter_before = is_cased(code);
    break;
  }
  if (!letter_before) return false;
  for (const char* after = begin + at + num_bytes; after < end;) {
    const text::CodePoint point = text::decode_utf8(after);
    if (!is_passed_over(point.code)) return !is_cased(point.code);
    after += point.num_bytes;
  }
  return true;
}

}  // namespace

std::string python_lower(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char first = text[at];
    if (static_cast<uint8_t>(first) < 0x80) {
      lower += first >= 'A' && first <= 'Z' ? static_cast<char>(first + ('a' - 'A')) : first;
      ++at;
      continue;
    }
    const text::CodePoint point = text::decode_utf8(text.data() + at);
    if (point.code == kCapitalSigma) {
      text::append_utf8(ends_word(text, at, point.num_bytes) ? kFinalSigma : kSigma, lower);
    } else if (point.code == kDottedI) {
      lower += 'i';
      text::append_utf8(kDotAbove, lower);
    } else {
      text::append_utf8(text::lowercase_of(point.code), lower);
    }
    at += static_cast<size_t>(point.num_bytes);
  }
  return lower;
}

}  // namespace espalier::curate
