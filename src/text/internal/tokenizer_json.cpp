#include "text/internal/tokenizer_json.h"

#include "base/format.h"

namespace espalier::text::internal {

using nlohmann::json;

std::string tokenizer_json_text(TokenizerJsonParts parts) {
  const json whole = {{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", std::move(parts.added_tokens)},
                      {"normalizer", std::move(parts.normalizer)},
                      {"pre_tokenizer", std::move(parts.pre_tokenizer)},
                      {"post_processor", std::move(parts.post_processor)},
                      {"decoder", std::move(parts.decoder)},
                      {"model", std::move(parts.model)}};
  return whole.dump(1) + "\n";
}

json added_token_json(int32_t id, std::string_view content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

json byte_level_json(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

json replace_json(std::string_view what, std::string_view by) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", by}};
}

json replace_regex_json(std::string_view expression, std::string_view by) {
  return {{"type", "Replace"}, {"pattern", {{"Regex", expression}}}, {"content", by}};
}

json sequence_json(const char* list, std::vector<json> steps) {
  if (steps.empty()) return nullptr;
  return {{"type", "Sequence"}, {list, std::move(steps)}};
}

std::optional<json> vocabulary_json(const std::vector<std::string>& pieces, std::string& why_not) {
  json vocabulary = json::object();
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].empty()) continue;
    const auto [known, is_new] = vocabulary.emplace(pieces[id], id);
    if (is_new) continue;
    why_not = concat("the ids ", known->get<int64_t>(), " and ", id, " have the same piece '", pieces[id],
                     "', which tokenizer.json can give to only one");
    return std::nullopt;
  }
  return vocabulary;
}

}  // namespace espalier::text::internal
