// The scanners behind PieceRule, inline so that an encoder's loop has no call per piece.
//
// Each alternative of a pattern is tried in its order; the comments name the one that a step stands for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "text/pretokenizer.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::text::internal {

enum class CharClass : uint8_t { kOther, kLetter, kNumber, kBlank };

constexpr CharClass class_of_properties(uint8_t properties) {
  if (properties & kWhiteSpaceBit) return CharClass::kBlank;
  const auto category = static_cast<Category>(properties & kCategoryBits);
  if (category >= Category::kUppercase && category <= Category::kOtherLetter) return CharClass::kLetter;
  if (category >= Category::kDecimalNumber && category <= Category::kOtherNumber) return CharClass::kNumber;
  return CharClass::kOther;
}

constexpr std::array<CharClass, 128> make_ascii_classes() {
  std::array<CharClass, 128> classes{};
  for (int code = 0; code < 128; ++code) {
    const bool letter = (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
    const bool blank = code == ' ' || (code >= '\t' && code <= '\r');
    classes[code] = letter                       ? CharClass::kLetter
                    : code >= '0' && code <= '9' ? CharClass::kNumber
                    : blank                      ? CharClass::kBlank
                                                 : CharClass::kOther;
  }
  return classes;
}
inline constexpr std::array<CharClass, 128> kAsciiClass = make_ascii_classes();

struct ClassifiedChar {
  CharClass kind;
  int num_bytes;
};

[[gnu::always_inline]] inline ClassifiedChar classify(const char* at) {
  const auto byte = static_cast<uint8_t>(*at);
  if (byte < 0x80) return {kAsciiClass[byte], 1};
  const CodePoint point = decode_utf8(at);
  return {class_of_properties(unicode_properties(point.code)), point.num_bytes};
}

[[gnu::always_inline]] inline const char* skip_class(CharClass kind, const char* at, const char* end) {
  while (at < end) {
    const ClassifiedChar next = classify(at);
    if (next.kind != kind) break;
    at += next.num_bytes;
  }
  return at;
}

inline bool is_line_break(char byte) { return byte == '\r' || byte == '\n'; }

// \s+(?!\S)|\s+ where a blank is at `at`: the run, without its last blank if text follows and more than one is
// there.
inline const char* blank_run_end(const char* at, const char* end) {
  const char* run_end = skip_class(CharClass::kBlank, at, end);
  if (run_end == end) return end;
  const char* last = previous_utf8(run_end);
  return last > at ? last : run_end;
}

// Bytes of 's 't 'm 'd 're 've 'll at `at` (an apostrophe), or 0. With `any_case` as (?i:...) in Oniguruma, where
// U+017F, whose case folding is s, counts as s.
template <bool any_case>
inline int contraction_length(const char* at, const char* end) {
  const ptrdiff_t left = end - at;
  if (left < 2) return 0;
  const auto letter = [at](int i) { return any_case && at[i] >= 'A' && at[i] <= 'Z' ? at[i] + 32 : at[i]; };
  const char first = static_cast<char>(letter(1));
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (left < 3) return 0;
  if (any_case && at[1] == '\xC5' && at[2] == '\xBF') return 3;  // U+017F
  const char second = static_cast<char>(letter(2));
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  return first == 'l' && second == 'l' ? 3 : 0;
}

inline const char* gpt2_piece_end(const char* at, const char* end) {
  if (*at == '\'') {
    if (const int length = contraction_length<false>(at, end)) return at + length;
  }
  const char* start = at;
  if (*at == ' ' && at + 1 < end) ++start;  // the optional blank before a run
  const ClassifiedChar first = classify(start);
  if (first.kind != CharClass::kBlank) return skip_class(first.kind, start + first.num_bytes, end);
  return blank_run_end(at, end);
}

// \s*[\r\n]+ where a blank is at `at`: up to the last line break of the run of blanks; `at` if it has none.
inline const char* line_breaks_end(const char* at, const char* end) {
  const char* run_end = skip_class(CharClass::kBlank, at, end);
  while (run_end > at && !is_line_break(run_end[-1])) --run_end;
  return run_end;
}

template <int max_digits, bool end_is_one_piece = false>
inline const char* llama3_piece_end(const char* at, const char* end) {
  if (*at == '\'') {
    if (const int length = contraction_length<true>(at, end)) return at + length;
  }
  const ClassifiedChar first = classify(at);
  const char* next = at + first.num_bytes;
  if (first.kind == CharClass::kLetter) return skip_class(CharClass::kLetter, next, end);
  if (first.kind == CharClass::kNumber) {  // \p{N}{1,max_digits}
    for (int digits = 1; digits < max_digits && next < end; ++digits) {
      const ClassifiedChar digit = classify(next);
      if (digit.kind != CharClass::kNumber) break;
      next += digit.num_bytes;
    }
    return next;
  }
  ClassifiedChar second{CharClass::kBlank, 0};
  if (next < end) second = classify(next);
  if (second.kind == CharClass::kLetter && !is_line_break(*at)) {  // [^\r\n\p{L}\p{N}]?\p{L}+
    return skip_class(CharClass::kLetter, next + second.num_bytes, end);
  }
  if (first.kind == CharClass::kOther || (*at == ' ' && second.kind == CharClass::kOther)) {
    next = skip_class(CharClass::kOther, next, end);  //  ?[^\s\p{L}\p{N}]+[\r\n]*
    while (next < end && is_line_break(*next)) ++next;
    return next;
  }
  if (end_is_one_piece && skip_class(CharClass::kBlank, at, end) == end) return end;  // \s+\z
  const char* lines = line_breaks_end(at, end);
  return lines > at ? lines : blank_run_end(at, end);
}

// The characters that BLOOM's pattern keeps inside a word, found by trying every code point: Oniguruma reads the inner
// brackets as a nested set, so ( ) and | are outside, [ and ] inside.
inline bool is_bloom_word(char32_t code) {
  switch (code) {
    case '!':
    case '(':
    case ')':
    case ',':
    case '.':
    case '?':
    case '|':
    case 0x060C:
    case 0x06D4:
    case 0x0964:
    case 0x2026:
    case 0x3001:
    case 0x3002:
    case 0xFF0C: return false;
    default: return !is_white_space(code);
  }
}

constexpr std::array<bool, 128> make_ascii_bloom_words() {
  std::array<bool, 128> words{};
  for (int code = 0; code < 128; ++code) {
    words[code] = kAsciiClass[code] != CharClass::kBlank && code != '!' && code != '(' && code != ')' && code != ',' &&
                  code != '.' && code != '?' && code != '|';
  }
  return words;
}
inline constexpr std::array<bool, 128> kAsciiBloomWord = make_ascii_bloom_words();

// Bytes of the word character at `at`, or minus the bytes of a character that is none.
inline int bloom_word_bytes(const char* at) {
  const auto byte = static_cast<uint8_t>(*at);
  if (byte < 0x80) return kAsciiBloomWord[byte] ? 1 : -1;
  const CodePoint point = decode_utf8(at);
  return is_bloom_word(point.code) ? point.num_bytes : -point.num_bytes;
}

inline const char* bloom_piece_end(const char* at, const char* end) {
  const char* word = *at == ' ' && at + 1 < end ? at + 1 : at;
  int bytes = bloom_word_bytes(word);
  if (bytes > 0) {
    for (word += bytes; word < end && (bytes = bloom_word_bytes(word)) > 0; word += bytes) {
    }
    return word;
  }
  // Between two matches: up to a word character or a blank before one.
  const char* gap = at + (*at == ' ' ? 1 : -bytes);
  while (gap < end) {
    bytes = bloom_word_bytes(gap);
    if (bytes > 0) return gap;
    if (*gap == ' ' && gap + 1 < end && bloom_word_bytes(gap + 1) > 0) return gap;
    gap -= bytes;
  }
  return end;
}

// The end of the piece that starts at `at` < `end`.
template <PieceRule rule>
inline const char* piece_end(const char* at, const char* end) {
  if constexpr (rule == PieceRule::kGpt2) return gpt2_piece_end(at, end);
  if constexpr (rule == PieceRule::kBloom) return bloom_piece_end(at, end);
  if constexpr (rule == PieceRule::kLlama3) return llama3_piece_end<3>(at, end);
  if constexpr (rule == PieceRule::kQwen2) return llama3_piece_end<1>(at, end);
  if constexpr (rule == PieceRule::kCl100k) return llama3_piece_end<3, true>(at, end);
}

// Calls visit(begin, end) for every piece.
template <PieceRule rule, class Visit>
inline void for_each_piece(std::string_view text, Visit&& visit) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* next = piece_end<rule>(at, end);
    visit(at, next);
    at = next;
  }
}

// The same with the rule known only at run time: one switch per text.
template <class Visit>
inline void for_each_piece(PieceRule rule, std::string_view text, Visit&& visit) {
  switch (rule) {
    case PieceRule::kGpt2: return for_each_piece<PieceRule::kGpt2>(text, visit);
    case PieceRule::kBloom: return for_each_piece<PieceRule::kBloom>(text, visit);
    case PieceRule::kLlama3: return for_each_piece<PieceRule::kLlama3>(text, visit);
    case PieceRule::kQwen2: return for_each_piece<PieceRule::kQwen2>(text, visit);
    case PieceRule::kCl100k: return for_each_piece<PieceRule::kCl100k>(text, visit);
  }
}

}  // namespace espalier::text::internal
