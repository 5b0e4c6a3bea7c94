// GPT-2's table between bytes and the characters that stand for them in a vocabulary ("\u0120the" is " the").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier::text::internal {

// Bytes 33..126, 161..172, 174..255 are the code point of the same value, the other 68 in order U+0100, U+0101, ...
char32_t char_of_byte(uint8_t byte);
// The byte that `code` stands for, or -1.
int byte_of_char(char32_t code);

// " the" from "\u0120the". None if a character stands for no byte.
std::optional<std::string> bytes_of_piece(std::string_view piece);
std::string piece_of_bytes(std::string_view bytes);

}  // namespace espalier::text::internal
