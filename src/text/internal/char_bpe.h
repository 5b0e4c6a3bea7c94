// Byte-pair encoding of words by characters: for vocabularies that are not byte-level (SentencePiece's, or with
// prefixes and suffixes of subwords).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/internal/bpe_model.h"
#include "text/internal/word_model.h"

namespace espalier::text::internal {

class CharBpe final : public WordModel {
 public:
  explicit CharBpe(BpeModel model);
  void encode_word(std::string_view word, WordScratch& scratch, std::vector<int32_t>& ids) const override;
  std::string name() const override { return "BPE of characters"; }

 private:
  struct Unknown {
    bool pending = false;
  };
  void add_character(const std::string& character, Unknown& unknown, std::vector<int32_t>& ids) const;

  BpeModel model_;
  int32_t unknown_id_ = -1;
  std::vector<int32_t> byte_ids_;  // of <0x00> to <0xFF>, -1 where the vocabulary has none
};

}  // namespace espalier::text::internal
