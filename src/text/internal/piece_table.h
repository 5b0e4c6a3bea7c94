// An immutable map from byte strings to ids, and the hash that it and the caches of words share.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::text::internal {

inline uint64_t mix_words(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash_bytes(const char* data, size_t size);

// Room for `capacity` entries is taken at construction; keys are unique (the first one added stays).
class PieceTable {
 public:
  explicit PieceTable(size_t capacity);
  void add(std::string_view key, int32_t id);

  // -1 if `key` is not there.
  int32_t find(std::string_view key, uint64_t hash) const {
    for (size_t slot = hash & mask_;; slot = (slot + 1) & mask_) {
      const Entry& entry = entries_[slot];
      if (entry.id < 0) return -1;
      if (entry.tag == static_cast<uint32_t>(hash >> 32) && entry.length == key.size() &&
          std::memcmp(pool_.data() + entry.offset, key.data(), key.size()) == 0) {
        return entry.id;
      }
    }
  }
  int32_t find(std::string_view key) const { return find(key, hash_bytes(key.data(), key.size())); }

 private:
  struct Entry {
    uint32_t tag;
    int32_t id = -1;
    uint32_t offset, length;
  };
  std::vector<Entry> entries_;  // open addressing, at most half full
  std::string pool_;
  size_t mask_;
};

}  // namespace espalier::text::internal
