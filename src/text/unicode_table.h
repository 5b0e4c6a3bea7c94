// What each code point is, in Unicode 16.0: the version whose classes Hugging Face's tokenizers 0.23 uses.
//
// Debian's PCRE2 and utf8proc know older versions, so no class is ever taken from them.
// unicode_table.cpp is written by generate_unicode_table.py, which asks tokenizers about every code point.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace espalier::text {

// In the order of the generated table.
// clang-format off
enum class Category : uint8_t {
  kUnassigned, kUppercase, kLowercase, kTitlecase, kModifierLetter, kOtherLetter,           // Cn Lu Ll Lt Lm Lo
  kNonspacingMark, kSpacingMark, kEnclosingMark,                                            // Mn Mc Me
  kDecimalNumber, kLetterNumber, kOtherNumber,                                              // Nd Nl No
  kConnector, kDash, kOpen, kClose, kInitialQuote, kFinalQuote, kOtherPunctuation,          // Pc Pd Ps Pe Pi Pf Po
  kMathSymbol, kCurrencySymbol, kModifierSymbol, kOtherSymbol,                              // Sm Sc Sk So
  kSpace, kLineSeparator, kParagraphSeparator,                                              // Zs Zl Zp
  kControl, kFormat, kSurrogate, kPrivateUse,                                               // Cc Cf Cs Co
};
// clang-format on

namespace internal {
constexpr uint8_t kCategoryBits = 0x1F, kWhiteSpaceBit = 0x20, kWordBit = 0x40;
constexpr int kUnicodeBlockShift = 7;  // blocks of 128 code points
extern const uint16_t kUnicodeBlock[];
extern const uint8_t kUnicodeProperties[];

struct CodeRange {
  char32_t first, last;
};
struct CodePair {
  char32_t from, to;
};
extern const CodeRange kNumericChars[], kWordOfRustRegex[], kPunctuationChars[], kStrippedAccents[],
    kInertInNormalization[];
extern const size_t kNumericCharsSize, kWordOfRustRegexSize, kPunctuationCharsSize, kStrippedAccentsSize,
    kInertInNormalizationSize;
extern const CodePair kLowercase[];
extern const size_t kLowercaseSize;

// Sorted, apart.
inline bool is_in_ranges(char32_t code, const CodeRange* ranges, size_t size) {
  const CodeRange* after =
      std::upper_bound(ranges, ranges + size, code, [](char32_t c, const CodeRange& range) { return c < range.first; });
  return after != ranges && code <= after[-1].last;
}

inline uint8_t unicode_properties(char32_t code) {
  const uint32_t block = kUnicodeBlock[code >> kUnicodeBlockShift];
  return kUnicodeProperties[(block << kUnicodeBlockShift) | (code & ((1u << kUnicodeBlockShift) - 1))];
}
}  // namespace internal

// `code` is at most U+10FFFF.
inline Category category(char32_t code) {
  return static_cast<Category>(internal::unicode_properties(code) & internal::kCategoryBits);
}
inline bool is_between(Category category, Category first, Category last) {
  return category >= first && category <= last;
}
inline bool is_letter(char32_t code) {
  return is_between(category(code), Category::kUppercase, Category::kOtherLetter);
}
inline bool is_mark(char32_t code) {
  return is_between(category(code), Category::kNonspacingMark, Category::kEnclosingMark);
}
inline bool is_number(char32_t code) {
  return is_between(category(code), Category::kDecimalNumber, Category::kOtherNumber);
}
inline bool is_punctuation(char32_t code) {
  return is_between(category(code), Category::kConnector, Category::kOtherPunctuation);
}
inline bool is_white_space(char32_t code) { return internal::unicode_properties(code) & internal::kWhiteSpaceBit; }
// \w: letters, marks, decimal digits, connectors and other alphabetic characters.
inline bool is_word(char32_t code) { return internal::unicode_properties(code) & internal::kWordBit; }

// What single parts of tokenizers say, whose libraries know other versions of Unicode.
inline bool is_numeric_for_digits(char32_t code) {
  return internal::is_in_ranges(code, internal::kNumericChars, internal::kNumericCharsSize);
}
inline bool is_word_for_whitespace(char32_t code) {  // the Whitespace pre-tokenizer and single_word of added tokens
  return internal::is_in_ranges(code, internal::kWordOfRustRegex, internal::kWordOfRustRegexSize);
}
inline bool is_punctuation_for_split(char32_t code) {
  return internal::is_in_ranges(code, internal::kPunctuationChars, internal::kPunctuationCharsSize);
}
inline bool is_stripped_accent(char32_t code) {
  return internal::is_in_ranges(code, internal::kStrippedAccents, internal::kStrippedAccentsSize);
}
// Decomposed, reordered or composed by the Unicode of today, but not by tokenizers.
inline bool is_inert_in_normalization(char32_t code) {
  return internal::is_in_ranges(code, internal::kInertInNormalization, internal::kInertInNormalizationSize);
}
// U+0130 has no single lower-case code point and stays.
inline char32_t lowercase_of(char32_t code) {
  const internal::CodePair* end = internal::kLowercase + internal::kLowercaseSize;
  const internal::CodePair* at = std::lower_bound(
      internal::kLowercase, end, code, [](const internal::CodePair& pair, char32_t c) { return pair.from < c; });
  return at != end && at->from == code ? at->to : code;
}

}  // namespace espalier::text
