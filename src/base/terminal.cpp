#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace espalier {

size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) return size.ws_col;
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
