// JSON as serde_json reads it, with which tokenizers reads its files. All is as in any reader but the fractions: they
// are off by a unit in the last place now and then, and such a unit in the scores of a Unigram model decides between
// paths of equal scores.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace espalier::text::internal {

// The number that serde_json makes of `text`, a number of JSON: its first 19 or 20 digits as a whole number, rounded,
// then times or over a power of ten, rounded again.
double serde_number(std::string_view text);

// Throws a UserError of `where` (a file's name) if the text is not JSON, or is nested as deep as serde_json refuses.
nlohmann::json parse_serde_json(std::string_view text, std::string_view where);

}  // namespace espalier::text::internal
