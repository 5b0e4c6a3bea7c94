// What chats need from a tokenizer besides its ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace espalier::text {

// A tokenizer whose encode() finds special tokens in a text and adds others around it.
class AddsSpecialTokens {
 public:
  virtual ~AddsSpecialTokens() = default;
  // The same ids without those that are added.
  virtual std::vector<int32_t> encode_bare(std::string_view text) const = 0;
};

// The ids of a text in which special tokens appear by name, as a chat template writes them; none is added.
std::vector<int32_t> encode_marked(const Tokenizer& tokenizer, std::string_view text);

// Where tokenizer.chat_template() is written, for complaints.
std::string chat_template_origin(const Tokenizer& tokenizer);

}  // namespace espalier::text
