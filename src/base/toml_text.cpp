#include "base/toml_text.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "base/format.h"

namespace espalier {
namespace {

struct TomlAssertion {};

// The first line whose bracket is followed by nothing that a key could begin with.
uint32_t line_of_keyless_header(const std::string& text) {
  uint32_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    size_t at = line.find_first_not_of(" \t");
    if (at == std::string::npos || line[at] != '[') continue;
    at = line.find_first_not_of(" \t", line.compare(at, 2, "[[") == 0 ? at + 2 : at + 1);
    if (at == std::string::npos) continue;
    const char next = line[at];
    const bool may_be_key =
        std::isalnum(static_cast<unsigned char>(next)) != 0 && static_cast<unsigned char>(next) < 0x80;
    if (!may_be_key && std::string("-_\"'[]#\r").find(next) == std::string::npos) return number;
  }
  return std::max<uint32_t>(number, 1);
}

}  // namespace

void refuse_toml_assertion() { throw TomlAssertion(); }

toml::table parse_toml_text(const std::string& text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const TomlAssertion&) {
    const toml::source_position place{line_of_keyless_header(text), 1};
    throw toml::parse_error("expected a key", toml::source_region{place, place, nullptr});
  }
}

}  // namespace espalier
