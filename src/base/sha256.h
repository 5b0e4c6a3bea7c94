// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): proof of a shared secret, and sums that other programs published.
//
// For checksums of our own files use base/hash.h, which is an order of magnitude faster.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace espalier {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  void update(std::string_view data);
  Sha256Digest digest();  // once

 private:
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  size_t in_block_ = 0;
  uint64_t num_bytes_ = 0;
};

// update() in parts, as Sha256.
class HmacSha256 {
 public:
  explicit HmacSha256(std::string_view key);
  void update(std::string_view data) { inner_.update(data); }
  Sha256Digest digest();  // once

 private:
  Sha256 inner_, outer_;
};

Sha256Digest sha256(std::string_view data);
Sha256Digest hmac_sha256(std::string_view key, std::string_view data);

// Lower-case hexadecimal digits, two a byte.
std::string hex_digits(std::string_view bytes);
std::string hex_digits(const Sha256Digest& digest);

// Takes the same time wherever the first difference is. Different lengths are different.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// From the kernel's generator.
std::string random_bytes(size_t count);

}  // namespace espalier
