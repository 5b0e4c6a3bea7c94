// The "model" of a tokenizer.json: BPE, Unigram, WordPiece or WordLevel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/internal/byte_bpe.h"
#include "text/internal/json_file.h"
#include "text/internal/word_model.h"

namespace espalier::text::internal {

struct HfModel {
  std::vector<std::string> pieces;  // by id; empty for an unused id
  // Of a text that several pieces share, the last one's. Behind a pointer, since models refer to it.
  std::unique_ptr<std::unordered_map<std::string, int32_t>> vocabulary;
  int64_t num_ids = 0;  // where those of added tokens begin
  bool is_word_piece = false;
  // One of the two:
  std::unique_ptr<ByteBpe> byte_bpe;
  std::unique_ptr<WordModel> words;
};

// `takes_bytes`: words come as bytes if the model can take them so (a BPE with a piece for each byte); else, and in any
// case for other models, as characters. Throws UserError for another type of model and for what contradicts itself.
HfModel read_hf_model(const JsonPart& part, bool takes_bytes);

}  // namespace espalier::text::internal
