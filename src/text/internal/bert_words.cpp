#include "text/internal/bert_words.h"

#include <algorithm>
#include <iterator>

#include "text/internal/bert_table.h"
#include "text/internal/normal_form.h"

namespace espalier::text::internal {

namespace {

// What Megatron takes for ideographs; tokenizers has a misprint in the last but two (kRustChinese).
constexpr CodeRange kIdeographs[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                                     {0x2B740, 0x2B81F}, {0x2B820, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};

bool is_newer_than_python(char32_t code) { return is_in_ranges(code, kNewerThanPython, kNewerThanPythonSize); }
bool is_cased(char32_t code) { return is_in_ranges(code, kPythonCased, kPythonCasedSize); }
bool is_case_ignorable(char32_t code) { return is_in_ranges(code, kPythonCaseIgnorable, kPythonCaseIgnorableSize); }

// After a cased letter and before none, not counting what is ignorable.
bool is_final_sigma(const std::u32string& codes, size_t at) {
  size_t before = at;
  while (before > 0 && is_case_ignorable(codes[before - 1])) --before;
  if (before == 0 || !is_cased(codes[before - 1])) return false;
  size_t after = at + 1;
  while (after < codes.size() && is_case_ignorable(codes[after])) ++after;
  return after == codes.size() || !is_cased(codes[after]);
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char byte) { return static_cast<uint8_t>(byte) < 0x80; });
}

}  // namespace

BertWords::BertWords(Options options) : options_(options), classes_(0x110000, 0) {
  if (options.flavour == Flavour::kMegatron) {
    add_class(kDropped, kPythonDropped, kPythonDroppedSize);
    add_class(kBlank, kPythonBlank, kPythonBlankSize);
    add_class(kMark, kPythonMark, kPythonMarkSize);
    add_class(kPunctuation, kPythonPunctuation, kPythonPunctuationSize);
    add_class(kIdeograph, kIdeographs, std::size(kIdeographs));
  } else {
    add_class(kDropped, kRustDropped, kRustDroppedSize);
    add_class(kBlank, kRustBlank, kRustBlankSize);
    add_class(kMark, kRustMark, kRustMarkSize);
    add_class(kPunctuation, kRustPunctuation, kRustPunctuationSize);
    add_class(kIdeograph, kRustChinese, kRustChineseSize);
  }
}

void BertWords::add_class(uint8_t bit, const CodeRange* ranges, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    for (char32_t code = ranges[i].first; code <= ranges[i].last; ++code) classes_[code] |= bit;
  }
}

void BertWords::strip_accents(std::string& text) const {
  if (is_ascii(text)) return;
  normalize(NormalForm::kNfd, text,
            options_.flavour == Flavour::kMegatron ? is_newer_than_python : is_inert_in_normalization);
  std::string kept;
  kept.reserve(text.size());
  for (const char* at = text.data(); at < text.data() + text.size();) {
    const CodePoint point = decode_utf8(at);
    if ((classes_[point.code] & kMark) == 0) kept.append(at, static_cast<size_t>(point.num_bytes));
    at += point.num_bytes;
  }
  text = std::move(kept);
}

void BertWords::lowercase_simply(std::string& text) const {
  std::string lower;
  lower.reserve(text.size());
  for (const char32_t code : to_utf32(text)) {
    append_utf8(code == 0x130 ? U'i' : lowercase_of(code), lower);
    if (code == 0x130) append_utf8(0x307, lower);
  }
  text = std::move(lower);
}

void BertWords::lowercase_as_python(std::string& text) const {
  const std::u32string codes = to_utf32(text);
  std::string lower;
  lower.reserve(text.size());
  for (size_t i = 0; i < codes.size(); ++i) {
    const char32_t code = codes[i];
    if (code == 0x3A3) {
      append_utf8(is_final_sigma(codes, i) ? 0x3C2 : 0x3C3, lower);
    } else if (code == 0x130) {
      append_utf8('i', lower);
      append_utf8(0x307, lower);
    } else {
      append_utf8(is_newer_than_python(code) ? code : lowercase_of(code), lower);
    }
  }
  text = std::move(lower);
}

void BertWords::normalize_run(std::string_view run, std::string& buffer) const {
  buffer.clear();
  if (is_ascii(run)) {
    for (const char byte : run) {
      if ((classes_[static_cast<uint8_t>(byte)] & kDropped) != 0) continue;
      buffer += options_.lowercase && byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte | 0x20) : byte;
    }
    return;
  }
  for (const char* at = run.data(); at < run.data() + run.size();) {
    const CodePoint point = decode_utf8(at);
    if ((classes_[point.code] & kDropped) == 0) buffer.append(at, static_cast<size_t>(point.num_bytes));
    at += point.num_bytes;
  }
  if (options_.flavour == Flavour::kMegatron) {
    if (options_.lowercase) lowercase_as_python(buffer);
    if (options_.strip_accents) strip_accents(buffer);
  } else {
    if (options_.strip_accents) strip_accents(buffer);
    if (options_.lowercase) lowercase_simply(buffer);
  }
}

std::string BertWords::normalized(std::string_view text, Parts parts) const {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  for (const char* at = text.data(); at < text.data() + text.size();) {
    const CodePoint point = decode_utf8(at);
    const uint8_t found = classes_[point.code];
    const std::string_view character(at, static_cast<size_t>(point.num_bytes));
    at += point.num_bytes;
    if (parts.clean_text && (found & kDropped) != 0) continue;
    const bool apart = parts.apart_ideographs && (found & kIdeograph) != 0;
    if (apart) result += ' ';
    result += parts.clean_text && (found & kBlank) != 0 ? std::string_view(" ") : character;
    if (apart) result += ' ';
  }
  if (options_.strip_accents) strip_accents(result);
  if (options_.lowercase) lowercase_simply(result);
  return result;
}

}  // namespace espalier::text::internal
