// What each code point is, in Unicode 16.0: the version whose classes Hugging Face's tokenizers 0.23 uses.
//
// Debian's PCRE2 and utf8proc know older versions, so no class is ever taken from them.
// unicode_table.cpp is written by generate_unicode_table.py, which asks tokenizers about every code point.
#pragma once

#include <cstdint>

namespace espalier::text {

// In the order of the generated table.
enum class Category : uint8_t {
  kUnassigned, kUppercase, kLowercase, kTitlecase, kModifierLetter, kOtherLetter,           // Cn Lu Ll Lt Lm Lo
  kNonspacingMark, kSpacingMark, kEnclosingMark,                                            // Mn Mc Me
  kDecimalNumber, kLetterNumber, kOtherNumber,                                              // Nd Nl No
  kConnector, kDash, kOpen, kClose, kInitialQuote, kFinalQuote, kOtherPunctuation,          // Pc Pd Ps Pe Pi Pf Po
  kMathSymbol, kCurrencySymbol, kModifierSymbol, kOtherSymbol,                              // Sm Sc Sk So
  kSpace, kLineSeparator, kParagraphSeparator,                                              // Zs Zl Zp
  kControl, kFormat, kSurrogate, kPrivateUse,                                               // Cc Cf Cs Co
};

namespace internal {
constexpr uint8_t kCategoryBits = 0x1F, kWhiteSpaceBit = 0x20, kWordBit = 0x40;
constexpr int kUnicodeBlockShift = 7;  // blocks of 128 code points
extern const uint16_t kUnicodeBlock[];
extern const uint8_t kUnicodeProperties[];

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

}  // namespace espalier::text
