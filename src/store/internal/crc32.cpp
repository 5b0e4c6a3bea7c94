#include <array>
#include <cstring>

#include "store/internal/zip_file.h"

namespace espalier::store {
namespace {

// Row k holds the CRC of a byte that has k zero bytes after it, so that eight bytes are taken in one step.
using Rows = std::array<std::array<uint32_t, 256>, 8>;
constexpr Rows kRows = [] {
  Rows rows{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    rows[0][byte] = crc;
  }
  for (size_t row = 1; row < rows.size(); ++row)
    for (size_t byte = 0; byte < 256; ++byte)
      rows[row][byte] = rows[row - 1][byte] >> 8 ^ rows[0][rows[row - 1][byte] & 255];
  return rows;
}();

}  // namespace

uint32_t crc32(const void* data, size_t size, uint32_t crc) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  crc = ~crc;
  for (; size >= 8; bytes += 8, size -= 8) {
    uint32_t low, high;
    std::memcpy(&low, bytes, 4);
    std::memcpy(&high, bytes + 4, 4);
    low ^= crc;
    crc = kRows[7][low & 255] ^ kRows[6][low >> 8 & 255] ^ kRows[5][low >> 16 & 255] ^ kRows[4][low >> 24] ^
          kRows[3][high & 255] ^ kRows[2][high >> 8 & 255] ^ kRows[1][high >> 16 & 255] ^ kRows[0][high >> 24];
  }
  for (; size > 0; ++bytes, --size) crc = crc >> 8 ^ kRows[0][(crc ^ *bytes) & 255];
  return ~crc;
}

}  // namespace espalier::store
