// tiktoken's vocabularies: byte-level BPE whose ids are the ranks of its merges.
//
// Two kinds of files: lines of "BASE64 RANK" (OpenAI's *.tiktoken, Llama 3's tokenizer.model), and the list of
// {"rank", "token_bytes", "token_str"} in JSON that NVIDIA's TikTokenizer reads, whose ids begin after the special
// tokens. A text gets the ids of tiktoken's encode_ordinary: special tokens inside it are plain text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace espalier::text {

struct TiktokenOptions {
  std::filesystem::path file;
  // How a text is cut into pieces: gpt2, r50k_base, p50k_base, cl100k_base, o200k_base or llama3, each with its special
  // tokens; v1 or v2, NVIDIA's; or a regular expression. Where it is empty the file's name without its extension
  // decides it, and 128,000 lines are Llama 3's.
  std::string pattern;
  // Lines: after the ranks, where the pattern brings none. JSON: in front of them, <unk>, <s> and </s> among them.
  std::vector<std::string> special_tokens;
  int64_t num_special_tokens = 1000;  // JSON: filled up with <SPECIAL_3> ...
  std::optional<int64_t> vocab_size;  // JSON: ids in all, 131,072 by default; the list is cut to it
};

std::unique_ptr<Tokenizer> load_tiktoken_tokenizer(const TiktokenOptions& options);

}  // namespace espalier::text
