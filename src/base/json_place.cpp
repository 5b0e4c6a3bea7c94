#include "base/json_place.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace espalier {

std::string text_place(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  // Characters begin at every byte that does not continue one.
  const auto column = 1 + std::count_if(before.begin() + static_cast<ptrdiff_t>(line_begin), before.end(),
                                        [](char letter) { return (letter & 0xc0) != 0x80; });
  return concat("line ", line, ", column ", column);
}

std::string json_place(std::string_view text, size_t byte) {
  if (text.empty()) return "it is empty";
  if (byte == 0 || byte > text.size()) return "it ends too early";
  const auto found = static_cast<unsigned char>(text[byte - 1]);
  const bool shows = found > 0x20 && found < 0x7f;
  return concat(text_place(text, byte - 1), " (found ",
                shows ? concat("'", text[byte - 1], "'") : format_printf("the byte 0x%02X", found), ")");
}

}  // namespace espalier
