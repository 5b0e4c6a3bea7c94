#include "base/json.h"

#include <algorithm>

#include "base/format.h"

namespace espalier {
namespace {

// "line 3, column 17"
std::string place_of(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  return concat("line ", line, ", column ", newline == std::string_view::npos ? offset + 1 : offset - newline);
}

}  // namespace

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
      throw UserError(concat(origin, ": ", place_of(text, at), ": lists and objects nest more than ", deepest,
                             " deep, which no file of this kind needs"),
                      ExitCode::kBadData);
  }
}

std::string json_complaint(std::string_view text, size_t byte) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "expected JSON, found nothing";
  if (byte == 0 || byte > text.size()) return "expected JSON, found the end of the text too early; it may be cut off";
  const char found = text[byte - 1];
  const bool printable = found > ' ' && found < 127;
  return concat(place_of(text, byte - 1), ": expected JSON, found ",
                printable ? concat("'", found, "'") : format_printf("byte 0x%02x", static_cast<unsigned char>(found)));
}

}  // namespace espalier
