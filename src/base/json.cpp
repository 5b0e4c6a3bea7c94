#include "base/json.h"

#include <algorithm>
#include <cctype>

#include "base/format.h"

namespace espalier {

void check_json_depth(std::string_view text, const std::string& origin, int deepest) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char byte = text[at];
    if (in_string) {
      if (byte == '\\') ++at;
      if (byte == '"') in_string = false;
      continue;
    }
    if (byte == '"') in_string = true;
    if (byte == ']' || byte == '}') --depth;
    if ((byte == '[' || byte == '{') && ++depth > deepest)
      throw UserError(concat(origin, ": ", text_place(text, at), ": lists and objects nest more than ", deepest,
                             " deep, which no file of this kind needs"),
                      ExitCode::kBadData);
  }
}

std::string text_place(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  // Characters begin at every byte that does not continue one.
  const auto column = 1 + std::count_if(before.begin() + static_cast<ptrdiff_t>(line_begin), before.end(),
                                        [](char letter) { return (letter & 0xc0) != 0x80; });
  return concat("line ", line, ", column ", column);
}

std::string json_complaint(std::string_view text, size_t byte) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "expected JSON, found nothing";
  if (byte == 0 || byte > text.size()) return "expected JSON, found the end of the text too early; it may be cut off";
  // Of a word that begins as true, false or null do, the whole is what is wrong.
  const auto is_of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  size_t begin = byte - 1, end = byte;
  while (begin > 0 && is_of_word(text[begin - 1]) && is_of_word(text[byte - 1])) --begin;
  const bool is_escape = begin > 0 && text[begin - 1] == '\\';  // in a string
  if (!is_escape && begin + 1 < byte && std::isalpha(static_cast<unsigned char>(text[begin])) != 0) {
    constexpr size_t kLongestWord = 40;
    while (end < text.size() && end < begin + kLongestWord && is_of_word(text[end])) ++end;
    return concat(text_place(text, begin), ": expected JSON, found '", text.substr(begin, end - begin),
                  "' without quotes");
  }
  const char found = text[byte - 1];
  const bool printable = found > ' ' && found < 127;
  return concat(text_place(text, byte - 1), ": expected JSON, found ",
                printable ? concat("'", found, "'") : format_printf("byte 0x%02x", static_cast<unsigned char>(found)));
}

}  // namespace espalier
