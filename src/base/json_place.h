// Where a text stops being JSON, in words of our own: a reader's library names its own classes.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

// "line 3, column 9" of the byte at `offset`: columns count characters.
std::string text_place(std::string_view text, size_t offset);

// "line 3, column 9 (found 'x')": the place of the byte-th byte, counted from 1, of `text`; at its end "the file ends".
std::string json_place(std::string_view text, size_t byte);

}  // namespace espalier
