#include "base/json.h"

#include "base/format.h"
#include "base/json_place.h"

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

std::string json_complaint(std::string_view text, size_t byte) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "expected JSON, found nothing";
  if (byte == 0 || byte > text.size()) return "expected JSON, found the end of the text too early; it may be cut off";
  const char found = text[byte - 1];
  const bool printable = found > ' ' && found < 127;
  return concat(text_place(text, byte - 1), ": expected JSON, found ",
                printable ? concat("'", found, "'") : format_printf("byte 0x%02x", static_cast<unsigned char>(found)));
}

}  // namespace espalier
