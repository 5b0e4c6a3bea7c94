// Base64 with the standard alphabet and its padding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace espalier::text::internal {

// None if `text` is no such thing as a whole.
std::optional<std::string> decode_base64(std::string_view text);

std::string encode_base64(std::string_view bytes);

}  // namespace espalier::text::internal
