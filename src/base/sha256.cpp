#include "base/sha256.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace espalier {
namespace {

std::array<uint32_t, 64> round_constants() {  // first 32 bits of the fractional parts of the cube roots of 64 primes
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
}

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void add_block(std::array<uint32_t, 8>& state, const uint8_t* block) {
  static const std::array<uint32_t, 64> constants = round_constants();
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t) w[t] = big_endian(block + 4 * t);
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

std::string_view text_of(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

void Sha256::update(std::string_view data) {
  num_bytes_ += data.size();
  while (!data.empty()) {
    if (in_block_ == 0 && data.size() >= block_.size()) {
      add_block(state_, reinterpret_cast<const uint8_t*>(data.data()));
      data.remove_prefix(block_.size());
      continue;
    }
    const size_t count = std::min(data.size(), block_.size() - in_block_);
    std::memcpy(block_.data() + in_block_, data.data(), count);
    in_block_ += count;
    data.remove_prefix(count);
    if (in_block_ < block_.size()) return;
    add_block(state_, block_.data());
    in_block_ = 0;
  }
}

Sha256Digest Sha256::digest() {
  const uint64_t num_bits = num_bytes_ * 8;
  std::string tail(1, '\x80');
  while ((in_block_ + tail.size()) % 64 != 56) tail += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) tail += static_cast<char>(num_bits >> shift);
  update(tail);
  Sha256Digest result;
  for (size_t at = 0; at < result.size(); ++at)
    result[at] = static_cast<uint8_t>(state_[at / 4] >> (24 - 8 * (at % 4)));
  return result;
}

HmacSha256::HmacSha256(std::string_view key) {
  std::array<char, 64> padded{};
  const Sha256Digest short_key = key.size() > padded.size() ? sha256(key) : Sha256Digest{};
  if (key.size() > padded.size()) key = text_of(short_key);
  std::copy(key.begin(), key.end(), padded.begin());
  for (char& byte : padded) byte = static_cast<char>(byte ^ 0x36);
  inner_.update({padded.data(), padded.size()});
  for (char& byte : padded) byte = static_cast<char>(byte ^ 0x36 ^ 0x5c);
  outer_.update({padded.data(), padded.size()});
}

Sha256Digest HmacSha256::digest() {
  const Sha256Digest inner = inner_.digest();
  outer_.update(text_of(inner));
  return outer_.digest();
}

Sha256Digest sha256(std::string_view data) {
  Sha256 sum;
  sum.update(data);
  return sum.digest();
}

Sha256Digest hmac_sha256(std::string_view key, std::string_view data) {
  HmacSha256 sum(key);
  sum.update(data);
  return sum.digest();
}

std::string hex_digits(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<uint8_t>(byte) >> 4];
    text += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return text;
}

std::string hex_digits(const Sha256Digest& digest) { return hex_digits(text_of(digest)); }

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile uint8_t difference = 0;
  for (size_t at = 0; at < a.size(); ++at) difference = difference | static_cast<uint8_t>(a[at] ^ b[at]);
  return difference == 0;
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t got = getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno == EINTR) continue;
    ESPALIER_CHECK(got > 0, "getrandom: ", std::strerror(errno));
    done += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace espalier
