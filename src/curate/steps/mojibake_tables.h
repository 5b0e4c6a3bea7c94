// Facts about characters that the step ftfy goes by; see generate_mojibake_tables.py.
#pragma once

#include <vector>

namespace espalier::curate {

// In the order in which they are tried.
enum class CodePage {
  kLatin1,
  kWindows1252,
  kWindows1251,
  kWindows1250,
  kWindows1253,
  kWindows1254,
  kWindows1257,
  kIso8859Part2,
  kMacRoman,
  kCp437,
};
inline constexpr int kNumCodePages = 10;

// What bytes from 0x80 on stand for; an unassigned one stands for the control character of its number.
extern const char16_t kCodePages[kNumCodePages][128];

enum class MojibakeClass {
  kCommon,
  kC1,
  kBad,
  kLaw,
  kCurrency,
  kStartPunctuation,
  kEndPunctuation,
  kNumeric,
  kKaomoji,
  kUpperAccented,
  kLowerAccented,
  kUpperCommon,
  kLowerCommon,
  kBox,
  // What the bytes of a UTF-8 sequence look like in some code page.
  kFirstOf2,
  kFirstOf3,
  kFirstOf4,
  kContinuation,
  kContinuationStrict,  // without what often stands for itself
};
inline constexpr int kNumMojibakeClasses = 19;

struct CharRange {
  char16_t first, last;
};
extern const std::vector<CharRange> kMojibakeClasses[kNumMojibakeClasses];  // sorted

extern const char kHtmlEntities[];  // "AElig:c6 AMP:26 ..."

}  // namespace espalier::curate
