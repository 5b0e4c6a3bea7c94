// How much text each id represents: what bits per byte divide by, so that models of different vocabularies compare.
#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace espalier::text {

// Special ids (beginning, end, padding, masks) are no text.
inline constexpr int32_t kNoText = -1;

// By id, up to vocab_size(), the UTF-8 bytes that it adds: " the" has 4, a byte of a character 1, "##ing" 3, a word of
// BERT one more than its letters for the blank before it. What begins a text has no such blank, and neither has the one
// that SentencePiece puts there: `first` says what an id stands for as the first of a text.
struct TextBytes {
  std::vector<int32_t> within, first;
};
// Empty where ids are not text (NullTokenizer). Takes about two microseconds an id.
TextBytes text_bytes(const Tokenizer& tokenizer);

}  // namespace espalier::text
