// Numbers in variables and arguments.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

namespace espalier::launch {

// Decimal digits and nothing else.
inline std::optional<int64_t> parse_whole(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace espalier::launch
