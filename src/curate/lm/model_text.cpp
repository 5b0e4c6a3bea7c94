#include "curate/lm/model_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "curate/python_lower.h"
#include "curate/steps/oscar_filters.h"
#include "text/python_text.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

struct Punctuation {
  char32_t code;
  const char* ascii;
};

// By code point. The fullwidth 1 (U+FF11), which is in the originals' table, is a 0 before the table is looked at.
constexpr Punctuation kPunctuation[] = {
    {0xAB, "\""},   {0xB4, "'"},    {0xBB, "\""},    {0x2013, "-"},  {0x2014, " - "}, {0x2019, "'"},  {0x201C, "\""},
    {0x201D, "\""}, {0x201E, "\""}, {0x2026, "..."}, {0x2236, ":"},  {0x2501, "-"},   {0x25BA, "-"},  {0x3001, ","},
    {0x3002, "."},  {0x3008, "<"},  {0x3009, ">"},   {0x300A, "\""}, {0x300B, "\""},  {0x300C, "\""}, {0x300D, "\""},
    {0x3010, "["},  {0x3011, "]"},  {0xFF01, "!"},   {0xFF05, "%"},  {0xFF08, "("},   {0xFF09, ")"},  {0xFF0C, ","},
    {0xFF0E, ". "}, {0xFF1A, ":"},  {0xFF1B, ";"},   {0xFF1F, "?"},  {0xFF5E, "~"},
};

bool is_non_printing(char32_t code) { return code < 32 || (code >= 127 && code < 160); }

// Each character as write(code, bytes, result) has it.
template <class Write>
std::string rewritten(std::string_view text, Write write) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const text::CodePoint point = text::decode_utf8(text.data() + at);
    const auto size = static_cast<size_t>(point.num_bytes);
    write(point.code, text.substr(at, size), result);
    at += size;
  }
  return result;
}

std::string without_non_printing(std::string_view text) {
  return rewritten(text, [](char32_t code, std::string_view bytes, std::string& result) {
    if (!is_non_printing(code)) result += bytes;
  });
}

std::string with_plain_digits_and_punctuation(std::string_view text) {
  return rewritten(text, [](char32_t code, std::string_view bytes, std::string& result) {
    if (text::category(code) == text::Category::kDecimalNumber) {
      result += '0';
      return;
    }
    const auto* const found =
        std::lower_bound(std::begin(kPunctuation), std::end(kPunctuation), code,
                         [](const Punctuation& mark, char32_t wanted) { return mark.code < wanted; });
    if (found != std::end(kPunctuation) && found->code == code)
      result += found->ascii;
    else
      result += bytes;
  });
}

std::string without_accents(std::string_view text) {
  utf8proc_uint8_t* decomposed = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &decomposed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(decomposed, &std::free);
  ESPALIER_CHECK(size >= 0, "utf8proc: ", utf8proc_errmsg(size));
  const std::string_view all(reinterpret_cast<const char*>(decomposed), static_cast<size_t>(size));
  return rewritten(all, [](char32_t code, std::string_view bytes, std::string& result) {
    if (text::category(code) != text::Category::kNonspacingMark) result += bytes;
  });
}

std::string bigscience_text(std::string_view text, bool lower_case) {
  const std::string printing = without_non_printing(text);
  std::string stripped(text::python::strip(printing));
  if (lower_case) stripped = python_lower(stripped);
  return with_plain_digits_and_punctuation(oscar_plain_blanks(stripped));
}

}  // namespace

std::string model_text(ModelText setting, std::string_view text) {
  switch (setting) {
    case ModelText::kPlain: break;
    case ModelText::kBigScience: return bigscience_text(text, false);
    case ModelText::kCcnet:
      return without_non_printing(
          with_plain_digits_and_punctuation(without_accents(python_lower(text::python::strip(text)))));
  }
  return std::string(text);
}

std::string bigscience_words_text(std::string_view text) { return bigscience_text(text, true); }

}  // namespace espalier::curate
