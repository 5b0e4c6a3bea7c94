// The two checksums of the project's files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace espalier {

// XXH3, 64 bits: blocks of checkpoints, sample hashes. Can be fed in parts through Hasher.
uint64_t hash64(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t hash64(const std::string& text, uint64_t seed = 0) { return hash64(text.data(), text.size(), seed); }

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void update(const void* data, size_t size);
  uint64_t digest() const;

 private:
  void* state_;
};

// CRC-32C (Castagnoli), as TensorBoard's record format needs it.
uint32_t crc32c(const void* data, size_t size, uint32_t crc = 0);

std::string hex64(uint64_t value);  // 16 lower-case digits

}  // namespace espalier
