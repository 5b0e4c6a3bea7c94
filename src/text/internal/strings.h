// Replacing inside texts, as the decoders of several libraries do.
#pragma once

#include <string>
#include <string_view>

namespace espalier::text::internal {

// Every occurrence, from left to right; an empty `from` has none.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

// Without what Python's str.strip takes from both ends: white space and U+001C to U+001F.
std::string_view strip_as_python(std::string_view text);

}  // namespace espalier::text::internal
