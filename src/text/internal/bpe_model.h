// The "model" of a tokenizer.json of type BPE, as read.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/internal/byte_bpe.h"
#include "text/internal/json_file.h"

namespace espalier::text::internal {

struct BpeModel {
  std::unordered_map<std::string, int32_t> vocabulary;
  std::vector<std::string> pieces;  // by id; empty for an unused id
  BpeMerges merges;                 // over ids
  std::string unknown;              // empty: what is unknown is dropped
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
  std::string continuing_prefix, end_of_word_suffix;
};

// "vocab", an object of pieces and their ids, into `vocabulary` and `pieces`.
void read_vocabulary(const JsonPart& part, BpeModel& model);

// Throws UserError for dropout, and for merges of pieces that do not exist.
BpeModel read_bpe_model(const JsonPart& part);

// True if byte strings can be encoded without going through characters: every byte has its piece, and there is neither
// a prefix nor a suffix.
bool is_byte_level(const BpeModel& model);
ByteBpeSource byte_bpe_source(const BpeModel& model);

}  // namespace espalier::text::internal
