#include "text/internal/piece_table.h"

#include <bit>

#include "base/error.h"

namespace espalier::text::internal {

uint64_t hash_bytes(const char* data, size_t size) {
  uint64_t hash = mix_words(size, 0x2545F4914F6CDD1Du);
  while (size >= 16) {
    uint64_t words[2];
    std::memcpy(words, data, 16);
    hash = mix_words(words[0] ^ hash, words[1]);
    data += 16;
    size -= 16;
  }
  uint64_t words[2] = {0, 0};
  std::memcpy(words, data, size);
  return mix_words(words[0] ^ hash, words[1]);
}

PieceTable::PieceTable(size_t capacity) : entries_(std::bit_ceil(2 * capacity + 2)), mask_(entries_.size() - 1) {}

void PieceTable::add(std::string_view key, int32_t id) {
  const uint64_t hash = hash_bytes(key.data(), key.size());
  if (find(key, hash) >= 0) return;
  ESPALIER_CHECK(pool_.size() + key.size() <= UINT32_MAX, "a vocabulary of over 4 GiB");
  size_t slot = hash & mask_;
  while (entries_[slot].id >= 0) slot = (slot + 1) & mask_;
  entries_[slot] = {static_cast<uint32_t>(hash >> 32), id, static_cast<uint32_t>(pool_.size()),
                    static_cast<uint32_t>(key.size())};
  pool_ += key;
}

}  // namespace espalier::text::internal
