#include "base/hash.h"

#include <xxhash.h>

#include <array>

#include "base/format.h"

namespace espalier {

uint64_t hash64(const void* data, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(data, size, seed); }

Hasher::Hasher() : state_(XXH3_createState()) { XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_)); }
Hasher::~Hasher() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void Hasher::update(const void* data, size_t size) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), data, size);
}
uint64_t Hasher::digest() const { return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_)); }

uint32_t crc32c(const void* data, size_t size, uint32_t crc) {
  static const auto table = [] {
    std::array<uint32_t, 256> entries{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t value = byte;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? (value >> 1) ^ 0x82f63b78u : value >> 1;
      entries[byte] = value;
    }
    return entries;
  }();
  crc = ~crc;
  const auto* bytes = static_cast<const uint8_t*>(data);
  for (size_t at = 0; at < size; ++at) crc = (crc >> 8) ^ table[(crc ^ bytes[at]) & 0xff];
  return ~crc;
}

std::string hex64(uint64_t value) { return format_printf("%016llx", static_cast<unsigned long long>(value)); }

}  // namespace espalier
