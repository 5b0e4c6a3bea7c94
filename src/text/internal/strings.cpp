#include "text/internal/strings.h"

#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::text::internal {

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  if (from.empty()) return std::string(text);
  std::string replaced;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    replaced.append(text, done, at - done);
    replaced += to;
    done = at + from.size();
  }
  return replaced.append(text, done, std::string_view::npos);
}

std::string_view strip_as_python(std::string_view text) {
  const auto is_blank = [](char32_t code) { return is_white_space(code) || (code >= 0x1C && code <= 0x1F); };
  while (!text.empty()) {
    const CodePoint first = decode_utf8(text.data());
    if (!is_blank(first.code)) break;
    text.remove_prefix(static_cast<size_t>(first.num_bytes));
  }
  while (!text.empty()) {
    const CodePoint last = decode_utf8(previous_utf8(text.data() + text.size()));
    if (!is_blank(last.code)) break;
    text.remove_suffix(static_cast<size_t>(last.num_bytes));
  }
  return text;
}

}  // namespace espalier::text::internal
