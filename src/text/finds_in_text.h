// Whether a tokenizer finds special tokens in a text: Hugging Face's added tokens; of most types they are plain text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace espalier::text {

// Whether encode() makes the piece of `id` in a text this id.
inline bool finds_in_text(const Tokenizer& tokenizer, int32_t id) {
  const std::vector<int32_t> ids = tokenizer.encode(tokenizer.id_to_piece(id));
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace espalier::text
