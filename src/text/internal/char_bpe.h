// Byte-pair encoding of words by characters: for vocabularies that are not byte-level (SentencePiece's, or with
// prefixes and suffixes of subwords).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/internal/bpe_model.h"

namespace espalier::text::internal {

class CharBpe {
 public:
  explicit CharBpe(const BpeModel& model);

  // Appends the ids of a word (valid UTF-8, not empty), nothing cached.
  void encode_word(std::string_view word, BpeMerges::Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  struct Unknown {
    bool pending = false;
  };
  void add_character(const std::string& character, Unknown& unknown, std::vector<int32_t>& ids) const;

  const BpeModel& model_;
  int32_t unknown_id_ = -1;
  std::vector<int32_t> byte_ids_;  // of <0x00> to <0xFF>, -1 where the vocabulary has none
};

// One thread's state: a bounded cache of words.
class CharBpeEncoder {
 public:
  explicit CharBpeEncoder(const CharBpe& bpe) : bpe_(bpe) {}
  void encode_word(std::string_view word, std::vector<int32_t>& ids);

 private:
  static constexpr size_t kMaxWords = 1 << 16, kMaxWordBytes = 64;
  const CharBpe& bpe_;
  std::unordered_map<std::string, std::vector<int32_t>> cache_;
  BpeMerges::Scratch scratch_;
};

}  // namespace espalier::text::internal
