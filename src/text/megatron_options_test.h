// The options of the tokenizers in tests/data/megatron_tokenizers, as the script that made them wrote them down.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "text/tokenizer.h"

namespace espalier::text {

// Of FOLDER/options.json; the files that it names are next to it.
inline TokenizerOptions read_megatron_options(const std::filesystem::path& folder) {
  const nlohmann::json given = nlohmann::json::parse(read_file(folder / "options.json"));
  const auto file = [&](const char* key) {
    return given.contains(key) ? (folder / given[key].get<std::string>()).string() : "";
  };
  TokenizerOptions options;
  options.type = given.at("tokenizer_type");
  options.vocab_file = file("vocab_file");
  options.model_file = file("tokenizer_model");
  options.name_or_path = file("tokenizer_name_or_path");
  options.extra_ids = given.value("vocab_extra_ids", 0);
  options.tiktoken_pattern = given.value("tiktoken_pattern", "");
  options.tiktoken_num_special_tokens = given.value("tiktoken_num_special_tokens", 1000);
  options.tiktoken_special_tokens = given.value("tiktoken_special_tokens", std::vector<std::string>());
  if (given.contains("vocab_size")) options.vocab_size = given["vocab_size"].get<int64_t>();
  return options;
}

}  // namespace espalier::text
