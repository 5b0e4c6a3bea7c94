// Tokens as clients are shown them, and where they are in a text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "infer/engine/request.h"
#include "text/tokenizer.h"

namespace espalier::serve {

class TokenNames {
 public:
  explicit TokenNames(const text::Tokenizer& tokenizer);

  // What the token adds inside a text, special tokens by their names; U+FFFD for bytes that are not characters on their
  // own.
  std::string name(int32_t id) const;
  const text::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  const text::Tokenizer& tokenizer_;
  std::vector<int32_t> before_;  // some text for the token to follow
  std::string before_text_;
};

int64_t num_characters(std::string_view text);

// A log-probability as JSON has it, which knows no infinity.
double finite(double log_probability);

// Where tokens begin in the text that they make, in characters. A token inside a character begins where that does.
class TextOffsets {
 public:
  explicit TextOffsets(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  int64_t push(int32_t id);

 private:
  const text::Tokenizer& tokenizer_;
  std::vector<int32_t> last_, open_;  // of the last whole character; those after it
  int64_t offset_ = 0;
};

// "logprobs" of a completion: tokens, token_logprobs, top_logprobs, text_offset.
class LegacyLogprobs {
 public:
  // `as_ids`: tokens are called "token_id:17".
  LegacyLogprobs(const TokenNames& names, bool as_ids);

  // A token without a log-probability: the first of a prompt.
  void add_first(int32_t id, TextOffsets& offsets);
  void add(const infer::TokenScore& score, TextOffsets& offsets);
  nlohmann::ordered_json take() { return std::move(json_); }

 private:
  std::string name(int32_t id) const;

  const TokenNames& names_;
  bool as_ids_;
  nlohmann::ordered_json json_;
};

// An element of "content" of a chat's logprobs.
nlohmann::ordered_json chat_logprob(const TokenNames& names, const infer::TokenScore& score, int64_t num_alternatives);

}  // namespace espalier::serve
