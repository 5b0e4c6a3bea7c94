// A text, or a part of one, while the rules of a tokenizer.json work on it.
#pragma once

#include <string>
#include <string_view>

namespace espalier::text::internal {

// What normalizers change.
struct Piece {
  std::string text;        // valid UTF-8
  bool at_origin = false;  // its first character comes from the first one of the whole text
};

// What pre-tokenizers cut.
struct PieceView {
  std::string_view text;  // never empty
  bool at_origin = false;
};

}  // namespace espalier::text::internal
