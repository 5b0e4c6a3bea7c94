#include "text/utf8.h"

#include <cstring>

namespace espalier::text {

namespace {

// What follows a lead byte: how many bytes, and the range of the first of them (the others are 80..BF).
struct Lead {
  int num_following;  // 0: not a lead byte
  uint8_t first_low, first_high;
};

Lead lead_of(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};  // without the surrogates
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

// Bytes of the non-ASCII character at `at`, or minus the bytes of its longest valid start (at least 1).
int character_length(const uint8_t* at, const uint8_t* end) {
  const Lead lead = lead_of(*at);
  if (lead.num_following == 0) return -1;
  if (at + 1 == end || at[1] < lead.first_low || at[1] > lead.first_high) return -1;
  for (int i = 2; i <= lead.num_following; ++i) {
    if (at + i == end || (at[i] & 0xC0) != 0x80) return -i;
  }
  return lead.num_following + 1;
}

}  // namespace

void append_utf8(char32_t code, std::string& text) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    text += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
}

std::u32string to_utf32(std::string_view valid) {
  std::u32string codes;
  codes.reserve(valid.size());
  for (const char* at = valid.data(); at < valid.data() + valid.size();) {
    const CodePoint point = decode_utf8(at);
    codes += point.code;
    at += point.num_bytes;
  }
  return codes;
}

size_t valid_utf8_prefix(std::string_view text) {
  const auto* begin = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* end = begin + text.size();
  const uint8_t* at = begin;
  while (at < end) {
    if (end - at >= 8) {
      uint64_t eight;
      std::memcpy(&eight, at, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    if (*at < 0x80) {
      ++at;
      continue;
    }
    const int length = character_length(at, end);
    if (length < 0) break;
    at += length;
  }
  return static_cast<size_t>(at - begin);
}

std::string_view repair_utf8(std::string_view text, std::string& storage, int64_t& num_replaced) {
  size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return text;
  storage.clear();
  storage.reserve(text.size() + text.size() / 8);
  while (true) {
    storage.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return storage;
    const auto* at = reinterpret_cast<const uint8_t*>(text.data());
    append_utf8(kReplacement, storage);
    ++num_replaced;
    text.remove_prefix(static_cast<size_t>(-character_length(at, at + text.size())));
    valid = valid_utf8_prefix(text);
  }
}

}  // namespace espalier::text
