#include "text/internal/base64.h"

#include <algorithm>
#include <cstdint>

namespace espalier::text::internal {

namespace {

int value_of(char letter) {
  if (letter >= 'A' && letter <= 'Z') return letter - 'A';
  if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
  if (letter >= '0' && letter <= '9') return letter - '0' + 52;
  return letter == '+' ? 62 : letter == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t at = 0; at < text.size(); at += 4) {
    uint32_t group = 0;
    const size_t letters = at + 4 == text.size() ? 4 - padding : 4;
    for (size_t i = 0; i < 4; ++i) {
      const int value = i < letters ? value_of(text[at + i]) : 0;
      if (value < 0) return std::nullopt;
      group = group << 6 | static_cast<uint32_t>(value);
    }
    const char decoded[] = {static_cast<char>(group >> 16), static_cast<char>(group >> 8), static_cast<char>(group)};
    bytes.append(decoded, letters - 1);
    const uint32_t unused = letters == 2 ? group & 0xFFFF : letters == 3 ? group & 0xFF : 0;
    if (unused != 0) return std::nullopt;
  }
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t given = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) group = group << 8 | (i < given ? static_cast<uint8_t>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) text += i <= given ? kLetters[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

}  // namespace espalier::text::internal
