// Python's str, of UTF-8 text: what the harness's prompts are made with. Positions and lengths count code points,
// blanks are what str.isspace() and \s of re call so. The text must be valid UTF-8.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::text::python {

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip(std::string_view text);
std::string_view strip_right(std::string_view text, std::string_view characters);  // rstrip(characters), ASCII

std::vector<std::string_view> split_words(std::string_view text);  // split()
std::string_view first_word(std::string_view text);                // up to a blank
// re.split(r"\s+", text): an empty field where the text begins or ends with a blank.
size_t count_fields(std::string_view text);

int64_t num_characters(std::string_view text);
// text[begin:end], as Python has it: negative counts from the end, beyond the end is the end.
std::string_view slice(std::string_view text, int64_t begin, int64_t end = INT64_MAX);

std::string replace_all(std::string_view text, std::string_view from, std::string_view to);
struct Replacement {
  std::string_view from, to;
};
std::string replace_in_order(std::string_view text, std::span<const Replacement> replacements);

// lower(), upper() and capitalize(), character by character: a final sigma is as any other, and what has several
// capitals ("ß") stays.
std::string lowercase(std::string_view text);
std::string uppercase(std::string_view text);
std::string capitalize(std::string_view text);

std::string nfd(std::string_view text);  // unicodedata.normalize("NFD", text)

std::string repr(double value);  // as Python prints a float: "0.1", "1.0", "1e-05", "100000.0", "nan"

}  // namespace espalier::text::python
