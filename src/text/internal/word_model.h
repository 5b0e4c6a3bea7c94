// How a word becomes ids, for models that look at characters rather than bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/internal/bpe_merges.h"
#include "text/internal/unigram.h"

namespace espalier::text::internal {

// Buffers, reused between calls; one per thread.
struct WordScratch {
  BpeMerges::Scratch merges;
  Unigram::Scratch unigram;
  std::vector<Unigram::Node> nodes;
  std::string text;
};

class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the ids of a word (valid UTF-8, not empty), which depend on nothing else. Any thread.
  virtual void encode_word(std::string_view word, WordScratch& scratch, std::vector<int32_t>& ids) const = 0;
  virtual std::string name() const = 0;  // for people: "WordPiece"
};

}  // namespace espalier::text::internal
