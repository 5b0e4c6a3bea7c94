#include "text/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/internal/normal_form.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::text::python {
namespace {

bool is_blank(char32_t code) {
  switch (code) {
    case 0x1C:
    case 0x1D:
    case 0x1E:
    case 0x1F: return true;  // separators: blank to Python alone
    default: return text::is_white_space(code);
  }
}

// Calls visit(begin, end, code) for each character until that returns false; returns where it stopped.
template <class Visit>
size_t walk(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const text::CodePoint point = text::decode_utf8(text.data() + at);
    if (!visit(at, point.code)) return at;
    at += static_cast<size_t>(point.num_bytes);
  }
  return text.size();
}

// The byte where the character at `position` begins; the end where there are fewer.
size_t byte_of(std::string_view text, int64_t position) {
  int64_t passed = 0;
  return walk(text, [&](size_t, char32_t) { return passed++ < position; });
}

}  // namespace

std::string_view strip_left(std::string_view text) {
  return text.substr(walk(text, [](size_t, char32_t code) { return is_blank(code); }));
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const char* const last = text::previous_utf8(text.data() + text.size());
    if (!is_blank(text::decode_utf8(last).code)) break;
    text = text.substr(0, static_cast<size_t>(last - text.data()));
  }
  return text;
}

std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

std::string_view strip_right(std::string_view text, std::string_view characters) {
  const size_t last = text.find_last_not_of(characters);
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    words.push_back(first_word(text));
    text.remove_prefix(words.back().size());
  }
  return words;
}

std::string_view first_word(std::string_view text) {
  return text.substr(0, walk(text, [](size_t, char32_t code) { return !is_blank(code); }));
}

size_t count_fields(std::string_view text) {
  size_t fields = 1;
  bool in_blank = false;
  walk(text, [&](size_t, char32_t code) {
    const bool blank = is_blank(code);
    fields += blank && !in_blank;
    in_blank = blank;
    return true;
  });
  return fields;
}

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

std::string_view slice(std::string_view text, int64_t begin, int64_t end) {
  if (begin < 0 || end < 0) {
    const int64_t size = num_characters(text);
    if (begin < 0) begin = std::max<int64_t>(0, begin + size);
    if (end < 0) end = std::max<int64_t>(0, end + size);
  }
  if (begin >= end) return {};
  const size_t first = byte_of(text, begin);
  return text.substr(first, byte_of(text.substr(first), end - begin));
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string replaced;
  for (;;) {
    const size_t found = text.find(from);
    if (found == std::string_view::npos) return replaced.append(text);
    replaced.append(text.substr(0, found)).append(to);
    text.remove_prefix(found + from.size());
  }
}

std::string replace_in_order(std::string_view text, std::span<const Replacement> replacements) {
  std::string replaced(text);
  for (const Replacement& replacement : replacements)
    replaced = replace_all(replaced, replacement.from, replacement.to);
  return replaced;
}

std::string lowercase(std::string_view text) {
  std::string lower;
  walk(text, [&](size_t, char32_t code) {
    text::append_utf8(code == 0x130 ? U'i' : text::lowercase_of(code), lower);
    if (code == 0x130) text::append_utf8(0x307, lower);
    return true;
  });
  return lower;
}

std::string uppercase(std::string_view text) {
  std::string upper;
  walk(text, [&](size_t, char32_t code) {
    text::append_utf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))), upper);
    return true;
  });
  return upper;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const std::string_view first = slice(text, 0, 1);
  std::string capitalized;
  text::append_utf8(
      static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(text::decode_utf8(first.data()).code))),
      capitalized);
  return capitalized + lowercase(text.substr(first.size()));
}

std::string nfd(std::string_view text) {
  std::string normal(text);
  internal::normalize(internal::NormalForm::kNfd, normal, [](char32_t) { return false; });
  return normal;
}

// The shortest digits that read back; with an exponent below 1e-4 and from 1e16 on.
std::string repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[512];
  const double size = std::abs(value);
  if (size != 0 && (size < 1e-4 || size >= 1e16))
    return {buffer, std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr};
  const std::string text(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed).ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

}  // namespace espalier::text::python
