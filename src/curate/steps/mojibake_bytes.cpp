// The bytes that mojibake stands for: UTF-8 that lost a byte here and there.
#include <array>

#include "curate/steps/mojibake.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

uint8_t byte_at(std::string_view bytes, size_t at) { return at < bytes.size() ? static_cast<uint8_t>(bytes[at]) : 0; }
bool is_byte_in(uint8_t byte, int first, int last) { return byte >= first && byte <= last; }
bool is_tail(uint8_t byte) { return is_byte_in(byte, 0x80, 0xbf); }

// How many bytes from `at` on are a sequence in which one blank was 0xA0; 0: none. Only what then means a likely
// character counts.
size_t lost_a0_length(std::string_view bytes, size_t at) {
  const uint8_t first = byte_at(bytes, at), second = byte_at(bytes, at + 1), third = byte_at(bytes, at + 2);
  constexpr std::string_view kFirstOfTwo = "\xc2\xc3\xc5\xce\xd0\xd9";
  if (second == ' ' && kFirstOfTwo.find(static_cast<char>(first)) != std::string_view::npos && first != 0) return 2;
  const auto is_other_tail = [](uint8_t byte) { return is_tail(byte) && byte != 0x85 && byte != 0xa0; };
  if (is_byte_in(first, 0xe2, 0xe3) && second == ' ' && is_other_tail(third)) return 3;
  if (is_byte_in(first, 0xe0, 0xe3) && is_other_tail(second) && third == ' ') return 3;
  if (first != 0xf0) return 0;
  int num_blanks = 0;
  for (size_t index = 1; index < 4; ++index) {
    const uint8_t byte = byte_at(bytes, at + index);
    num_blanks += byte == ' ';
    if (byte != ' ' && !is_tail(byte)) return 0;
  }
  return num_blanks == 1 ? 4 : 0;
}

// "Ã la": the blank is one, and 0xA0 went beside it. In Portuguese words such as "Ã s" it is 0xA0 itself.
void insert_a0_behind_a_grave(std::string& bytes) {
  std::string result;
  for (size_t at = 0; at < bytes.size(); ++at) {
    result += bytes[at];
    if (bytes[at] != '\xc3' || byte_at(bytes, at + 1) != ' ') continue;
    const std::string_view rest = std::string_view(bytes).substr(at + 2);
    bool is_word = false;
    for (const char* word : {" ", "quele", "quela", "quilo", "s "}) is_word |= rest.starts_with(word);
    if (is_word) continue;
    result += "\xa0 ";
    ++at;
  }
  bytes = std::move(result);
}

bool is_lost(uint8_t byte) { return byte == 0x1a || byte == '?'; }

// A pair of surrogates, each as three bytes.
bool is_lossy_pair(std::string_view bytes, size_t at) {
  if (byte_at(bytes, at) != 0xed || !is_byte_in(byte_at(bytes, at + 1), 0xa0, 0xaf) || byte_at(bytes, at + 3) != 0xed ||
      !is_byte_in(byte_at(bytes, at + 4), 0xb0, 0xbf))
    return false;
  const uint8_t third = byte_at(bytes, at + 2), sixth = byte_at(bytes, at + 5);
  const bool both = (is_lost(third) || is_tail(third)) && (is_lost(sixth) || is_tail(sixth));
  return both && (is_lost(third) || is_lost(sixth));
}

// Of the `size` bytes of one sequence at least one got lost, and at most one of these is a question mark.
bool is_lossy_sequence(std::string_view bytes, size_t at, size_t size) {
  int num_lost = 0, num_marks = 0;
  for (size_t index = 1; index < size; ++index) {
    const uint8_t byte = byte_at(bytes, at + index);
    if (!is_lost(byte) && !is_tail(byte)) return false;
    num_lost += is_lost(byte);
    num_marks += byte == '?';
  }
  return num_lost > 0 && num_marks <= 1;
}

size_t lossy_length(std::string_view bytes, size_t at) {
  const uint8_t first = byte_at(bytes, at), second = byte_at(bytes, at + 1);
  if (is_byte_in(first, 0xc2, 0xdf) && second == 0x1a) return 2;
  if (is_byte_in(first, 0xc2, 0xc3) && second == '?') return 2;
  if (is_lossy_pair(bytes, at)) return 6;
  if (is_byte_in(first, 0xe0, 0xef) && is_lossy_sequence(bytes, at, 3)) return 3;
  if (is_byte_in(first, 0xf0, 0xf4) && is_lossy_sequence(bytes, at, 4)) return 4;
  return first == 0x1a && at < bytes.size() ? 1 : 0;
}

// A character beyond U+FFFF as two surrogates of three bytes each; 0: none is here.
char32_t surrogate_pair(std::string_view bytes, size_t at) {
  std::array<uint8_t, 6> unit{};
  for (size_t index = 0; index < 6; ++index) unit[index] = byte_at(bytes, at + index);
  if (unit[0] != 0xed || unit[3] != 0xed || !is_byte_in(unit[1], 0xa0, 0xaf) || !is_tail(unit[2]) ||
      !is_byte_in(unit[4], 0xb0, 0xbf) || !is_tail(unit[5]))
    return 0;
  return 0x10000u + ((unit[1] & 0x0fu) << 16) + ((unit[2] & 0x3fu) << 10) + ((unit[4] & 0x0fu) << 6) +
         (unit[5] & 0x3fu);
}

}  // namespace

bool has_lost_a0(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size(); ++at)
    if (lost_a0_length(bytes, at) > 0) return true;
  return false;
}

void restore_byte_a0(std::string& bytes) {
  insert_a0_behind_a_grave(bytes);
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = lost_a0_length(bytes, at);
    for (size_t index = 0; index < size; ++index)
      if (bytes[at + index] == ' ') bytes[at + index] = '\xa0';
    at += size > 0 ? size : 1;
  }
}

void replace_lossy_sequences(std::string& bytes) {
  std::string result;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = lossy_length(bytes, at);
    if (size == 0) {
      result += bytes[at++];
    } else {
      text::append_utf8(text::kReplacement, result);
      at += size;
    }
  }
  bytes = std::move(result);
}

std::optional<std::u32string> decode_utf8_variants(std::string_view bytes) {
  std::u32string result;
  for (size_t at = 0; at < bytes.size();) {
    if (const char32_t code = surrogate_pair(bytes, at); code != 0) {
      result += code;
      at += 6;
    } else if (byte_at(bytes, at) == 0xc0 && byte_at(bytes, at + 1) == 0x80) {
      result += U'\0';
      at += 2;
    } else {
      const size_t size = text::valid_utf8_prefix(bytes.substr(at, 4));
      if (size == 0) return std::nullopt;
      const text::CodePoint point = text::decode_utf8(bytes.data() + at);
      result += point.code;
      at += static_cast<size_t>(point.num_bytes);
    }
  }
  return result;
}

}  // namespace espalier::curate
