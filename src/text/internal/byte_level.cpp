#include "text/internal/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

constexpr int kFirstSubstitute = 0x100;
constexpr int kNumChars = 0x144;  // 256 + 68 substitutes

struct ByteTable {
  std::array<char32_t, 256> chars{};
  std::array<int16_t, kNumChars> bytes{};
};

constexpr ByteTable make_byte_table() {
  ByteTable table;
  for (auto& byte : table.bytes) byte = -1;
  char32_t substitute = kFirstSubstitute;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    table.chars[byte] = printable ? static_cast<char32_t>(byte) : substitute++;
    table.bytes[table.chars[byte]] = static_cast<int16_t>(byte);
  }
  return table;
}

constexpr ByteTable kTable = make_byte_table();

}  // namespace

char32_t char_of_byte(uint8_t byte) { return kTable.chars[byte]; }

int byte_of_char(char32_t code) { return code < kNumChars ? kTable.bytes[code] : -1; }

std::optional<std::string> bytes_of_piece(std::string_view piece) {
  std::string bytes;
  bytes.reserve(piece.size());
  for (const char* at = piece.data(); at < piece.data() + piece.size();) {
    const CodePoint point = decode_utf8(at);
    const int byte = byte_of_char(point.code);
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    at += point.num_bytes;
  }
  return bytes;
}

std::string piece_of_bytes(std::string_view bytes) {
  std::string piece;
  for (const char byte : bytes) append_utf8(char_of_byte(static_cast<uint8_t>(byte)), piece);
  return piece;
}

}  // namespace espalier::text::internal
