// SHA-256 (FIPS 180-4), to compare with sums that other implementations published. Not for production.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace espalier::test {

inline void sha256_block(std::array<uint32_t, 8>& state, const uint8_t* block) {
  static const auto constants = [] {  // first 32 bits of the fractional parts of the cube roots of 64 primes
    std::array<uint32_t, 64> values{};
    int found = 0;
    for (uint64_t candidate = 2; found < 64; ++candidate) {
      bool prime = true;
      for (uint64_t divisor = 2; divisor * divisor <= candidate; ++divisor) prime = prime && candidate % divisor != 0;
      if (!prime) continue;
      using Wide = unsigned __int128;
      uint64_t root = 0;  // floor(cube root of candidate * 2^96): 2^32 times the root
      for (uint64_t bit = uint64_t{1} << 35; bit != 0; bit >>= 1) {
        const Wide next = root | bit;
        if (next * next * next <= Wide{candidate} << 96) root |= bit;
      }
      values[found++] = static_cast<uint32_t>(root);
    }
    return values;
  }();
  std::array<uint32_t, 64> w;
  for (int t = 0; t < 16; ++t)
    w[t] = uint32_t{block[4 * t]} << 24 | uint32_t{block[4 * t + 1]} << 16 | uint32_t{block[4 * t + 2]} << 8 |
           block[4 * t + 3];
  for (int t = 16; t < 64; ++t)
    w[t] = (std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10) + w[t - 7] +
           (std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3) + w[t - 16];
  auto [a, b, c, d, e, f, g, h] = state;
  for (int t = 0; t < 64; ++t) {
    const uint32_t first =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + constants[t] + w[t];
    const uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const std::array<uint32_t, 8> added{a, b, c, d, e, f, g, h};
  for (int word = 0; word < 8; ++word) state[word] += added[word];
}

// 64 lower-case hexadecimal digits.
inline std::string sha256(std::string_view data) {
  std::array<uint32_t, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const size_t whole = data.size() / 64 * 64;
  for (size_t at = 0; at < whole; at += 64) sha256_block(state, reinterpret_cast<const uint8_t*>(data.data()) + at);
  std::string tail(data.substr(whole));
  tail += '\x80';
  while (tail.size() % 64 != 56) tail += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) tail += static_cast<char>(uint64_t{data.size()} * 8 >> shift);
  for (size_t at = 0; at < tail.size(); at += 64)
    sha256_block(state, reinterpret_cast<const uint8_t*>(tail.data()) + at);
  std::string text;
  for (const uint32_t word : state) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", word);
    text += digits;
  }
  return text;
}

}  // namespace espalier::test
