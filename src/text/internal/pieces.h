// What a text is while the steps of a tokenizer.json work on it: a list of pieces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::text::internal {

struct Piece {
  std::string text;        // valid UTF-8, never empty between steps
  int32_t id = -1;         // 0 or more: an added token, which later steps leave alone
  bool at_origin = false;  // its first character comes from the first one of the whole text
};

using Pieces = std::vector<Piece>;

}  // namespace espalier::text::internal
