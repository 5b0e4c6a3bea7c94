#include "base/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/format.h"

namespace espalier {
namespace {

int descriptor_of(Stream stream) { return stream == Stream::kOutput ? STDOUT_FILENO : STDERR_FILENO; }

// 0 where it is not a terminal, or does not know.
int columns_of(int descriptor) {
  winsize size = {};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

const char* code_of(Style style) {
  switch (style) {
    case Style::kBold: return "\033[1m";
    case Style::kRed: return "\033[1;31m";
    case Style::kYellow: return "\033[33m";
    case Style::kGreen: return "\033[32m";
    case Style::kFaint: return "\033[2m";
  }
  return "";
}

// The code point at `at`, which moves after it. Bytes that are not UTF-8 count as one character each.
char32_t next_code_point(const std::string& text, size_t& at) {
  const auto byte = static_cast<unsigned char>(text[at++]);
  const int more = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : 0;
  char32_t code = more == 0 ? byte : byte & (0x3f >> more);
  for (int i = 0; i < more && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; ++i)
    code = (code << 6) | (static_cast<unsigned char>(text[at++]) & 0x3f);
  return code;
}

bool is_wide(char32_t code) {
  return (code >= 0x1100 && code <= 0x115f) || (code >= 0x2e80 && code <= 0xa4cf) ||
         (code >= 0xac00 && code <= 0xd7a3) || (code >= 0xf900 && code <= 0xfaff) ||
         (code >= 0xfe30 && code <= 0xfe6f) || (code >= 0xff00 && code <= 0xff60) ||
         (code >= 0x1f300 && code <= 0x1faff) || (code >= 0x20000 && code <= 0x3fffd);
}

// Parts of a word that may be on lines of their own.
std::vector<std::string> breakable_parts(const std::string& word, size_t room) {
  if (word.size() <= room) return {word};
  std::vector<std::string> parts;
  std::string part;
  for (const char c : word) {
    part += c;
    const bool may_break = c == '|' || c == ',' || c == '/';
    if (may_break || part.size() >= room) parts.push_back(std::exchange(part, ""));
  }
  if (!part.empty()) parts.push_back(part);
  return parts;
}

}  // namespace

bool is_terminal(Stream stream) {
  const char* term = std::getenv("TERM");
  return isatty(descriptor_of(stream)) != 0 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

bool shows_colours(Stream stream) {
  const char* forbidden = std::getenv("NO_COLOR");
  if (forbidden != nullptr && *forbidden != '\0') return false;
  const char* forced = std::getenv("CLICOLOR_FORCE");
  if (forced != nullptr && *forced != '\0' && std::strcmp(forced, "0") != 0) return true;
  return is_terminal(stream);
}

int terminal_width(Stream stream, int otherwise) {
  if (!is_terminal(stream)) return otherwise;
  const int columns = columns_of(descriptor_of(stream));
  return columns == 0 ? otherwise : columns;
}

std::string styled(Stream stream, Style style, const std::string& text) {
  return shows_colours(stream) ? code_of(style) + text + "\033[0m" : text;
}

size_t display_width(const std::string& text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    const bool combines = (code >= 0x300 && code <= 0x36f) || (code >= 0x200b && code <= 0x200f) || code == 0xfeff;
    if (!combines && code >= 0x20) width += is_wide(code) ? 2 : 1;
  }
  return width;
}

std::string wrap_text(const std::string& text, size_t column, size_t indent, size_t width) {
  std::string result;
  bool line_is_empty = true;
  for (const std::string& word : split_blanks(text)) {
    bool is_first_part = true;
    for (const std::string& part : breakable_parts(word, width - indent)) {
      const size_t part_width = display_width(part), blank = is_first_part && !line_is_empty ? 1 : 0;
      if (!line_is_empty && column + blank + part_width > width) {
        result += "\n" + std::string(indent, ' ');
        column = indent;
        line_is_empty = true;
      }
      if (is_first_part && !line_is_empty) result += " ", ++column;
      result += part;
      column += part_width;
      line_is_empty = is_first_part = false;
    }
  }
  return result;
}

size_t terminal_columns() {
  if (const int columns = columns_of(STDERR_FILENO); columns > 1) return static_cast<size_t>(columns);
  const char* const given = std::getenv("COLUMNS");
  const int columns = given == nullptr ? 0 : std::atoi(given);
  return columns > 1 ? static_cast<size_t>(columns) : 80;
}

std::string fit_columns(const std::string& text, size_t columns) {
  constexpr const char* kMore = "...";
  const size_t room = columns < 3 ? 0 : columns - 3;
  size_t used = 0, fits = 0;  // `fits`: bytes that leave room for the dots
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    used += lead < 0xE1 ? 1 : 2;  // from U+1000 on, where wide characters begin
    if (used <= room) fits = end;
    if (used > columns) return text.substr(0, fits) + std::string(kMore).substr(0, columns);
    at = end;
  }
  return text;
}

}  // namespace espalier
