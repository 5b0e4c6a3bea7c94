// WordPiece: a word is the longest piece that begins it, then the longest continuing pieces; unknown as a whole if that
// fails, or if it is too long.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/internal/piece_trie.h"
#include "text/internal/word_model.h"

namespace espalier::text::internal {

class WordPiece final : public WordModel {
 public:
  struct Options {
    std::string continuing_prefix = "##";
    int32_t unknown_id = -1;
    int64_t max_characters = 100;
  };
  // `pieces` by id; empty ones are unused ids.
  WordPiece(const std::vector<std::string>& pieces, Options options);
  void encode_word(std::string_view word, WordScratch& scratch, std::vector<int32_t>& ids) const override;
  std::string name() const override { return "WordPiece"; }

 private:
  Options options_;
  PieceTrie beginning_, continuing_;  // the latter without the prefix
};

// A word is a piece or unknown.
class WordLevel final : public WordModel {
 public:
  WordLevel(const std::vector<std::string>& pieces, int32_t unknown_id);
  void encode_word(std::string_view word, WordScratch& scratch, std::vector<int32_t>& ids) const override;
  std::string name() const override { return "whole words"; }

 private:
  int32_t unknown_id_;
  PieceTrie words_;
};

}  // namespace espalier::text::internal
