// UTF-8, one code point at a time, and its repair.
//
// Everything behind the tokenizers' front door works on valid UTF-8 only: repair_utf8 is at the door.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace espalier::text {

constexpr char32_t kReplacement = 0xFFFD;

struct CodePoint {
  char32_t code;
  int num_bytes;
};

// The code point that starts at `at`, which must be the start of one in valid UTF-8.
inline CodePoint decode_utf8(const char* at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(at);
  if (bytes[0] < 0x80) return {bytes[0], 1};
  if (bytes[0] < 0xE0) return {static_cast<char32_t>((bytes[0] & 0x1F) << 6 | (bytes[1] & 0x3F)), 2};
  if (bytes[0] < 0xF0) {
    return {static_cast<char32_t>((bytes[0] & 0x0F) << 12 | (bytes[1] & 0x3F) << 6 | (bytes[2] & 0x3F)), 3};
  }
  return {static_cast<char32_t>((bytes[0] & 0x07) << 18 | (bytes[1] & 0x3F) << 12 | (bytes[2] & 0x3F) << 6 |
                                (bytes[3] & 0x3F)),
          4};
}

// The start of the code point that ends before `at`.
inline const char* previous_utf8(const char* at) {
  do --at;
  while ((static_cast<uint8_t>(*at) & 0xC0) == 0x80);
  return at;
}

void append_utf8(char32_t code, std::string& text);
std::u32string to_utf32(std::string_view valid);

// How many bytes at the start of `text` are valid UTF-8 (surrogates are not).
size_t valid_utf8_prefix(std::string_view text);

// `text` itself if it is valid. Otherwise a copy in `storage` in which every longest start of a character that is never
// finished, and every other byte that fits nowhere, is one U+FFFD, as Python's errors="replace" and Rust's
// from_utf8_lossy do; they are added to `num_replaced`.
std::string_view repair_utf8(std::string_view text, std::string& storage, int64_t& num_replaced);

}  // namespace espalier::text
