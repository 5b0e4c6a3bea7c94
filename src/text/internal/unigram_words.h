// The Unigram model of a tokenizer.json: each word cut by itself, neighbouring unknown characters taken as one piece.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/internal/unigram.h"
#include "text/internal/word_model.h"

namespace espalier::text::internal {

class UnigramWords final : public WordModel {
 public:
  struct Source {
    std::vector<std::pair<std::string, double>> pieces;  // with scores, by id
    int32_t unknown_id = -1;                             // -1: unknown characters are errors
    bool byte_fallback = false;
    std::string where;  // for errors
  };
  // `vocabulary` gives the id of a text that several pieces share; both must outlive the model.
  UnigramWords(Source source, const std::unordered_map<std::string, int32_t>& vocabulary);
  void encode_word(std::string_view word, WordScratch& scratch, std::vector<int32_t>& ids) const override;
  std::string name() const override { return "Unigram"; }

 private:
  void add_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  Source source_;
  const std::unordered_map<std::string, int32_t>& vocabulary_;
  Unigram unigram_;
  std::vector<int32_t> byte_ids_;  // of <0x00> to <0xFF>, -1 where the vocabulary has none
};

}  // namespace espalier::text::internal
