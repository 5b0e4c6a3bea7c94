// The parts that tokenizer.json files share, for the tokenizers that can be written as one (Tokenizer::tokenizer_json).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "text/tokenizer.h"

namespace espalier::text::internal {

struct TokenizerJsonParts {
  nlohmann::json normalizer, pre_tokenizer, post_processor, decoder;  // null: none
  nlohmann::json model;
  nlohmann::json added_tokens = nlohmann::json::array();
};
std::string tokenizer_json_text(TokenizerJsonParts parts);

// An entry of added_tokens: found in a text as it came. `special`: left out by skip_special_tokens.
nlohmann::json added_token_json(int32_t id, std::string_view content, bool special);
nlohmann::json byte_level_json(bool use_regex);
nlohmann::json replace_json(std::string_view what, std::string_view by);
nlohmann::json replace_regex_json(std::string_view expression, std::string_view by);
nlohmann::json sequence_json(const char* list, std::vector<nlohmann::json> steps);  // null where there are none

// The ids by piece; empty pieces are ids that nothing has. None, with what is wrong in `why_not`, where two are equal.
std::optional<nlohmann::json> vocabulary_json(const std::vector<std::string>& pieces, std::string& why_not);

}  // namespace espalier::text::internal
