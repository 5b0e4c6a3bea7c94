// A SentencePiece model as a tokenizer.json: Unigram, BPE and character models, with their rules of characters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/internal/sentencepiece_model.h"
#include "text/tokenizer.h"

namespace espalier::text::internal {

struct SentencePieceUse {
  std::optional<int32_t> first;                          // put before every text
  std::vector<std::pair<int32_t, std::string>> special;  // found in a text before the model sees it, by id
};

// What tokenizers cannot do as SentencePiece does is given in why_not; what it does otherwise in few texts, in notes.
TokenizerJson sentencepiece_json(const SentencePieceModel& model, const SentencePieceUse& use);

}  // namespace espalier::text::internal
