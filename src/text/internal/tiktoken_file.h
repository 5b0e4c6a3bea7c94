// The ranks of a tiktoken vocabulary, as read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace espalier::text::internal {

struct TiktokenRanks {
  std::vector<std::string> tokens;  // bytes, by rank; empty for a rank that is not used
  bool is_json = false;
};

// Throws UserError with the file, the line or the element, what was expected and what was found.
TiktokenRanks read_tiktoken_file(const std::filesystem::path& path);

// What the names of patterns stand for: the expression, and the special tokens with their ids.
struct TiktokenEncoding {
  std::string expression;
  std::vector<std::pair<std::string, int32_t>> special_tokens;
};
// `name` may be an expression itself. None for a word that is not a known name.
TiktokenEncoding tiktoken_encoding(const std::string& name, const std::string& where);
bool is_tiktoken_encoding(const std::string& name);

}  // namespace espalier::text::internal
