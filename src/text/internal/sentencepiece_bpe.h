// SentencePiece's BPE: neighbouring symbols are joined while their joint text is a piece, the best score first, the
// leftmost among equals. Characters that are not pieces still take part.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/internal/bpe_merges.h"
#include "text/internal/piece_table.h"
#include "text/internal/piece_trie.h"
#include "text/internal/sentencepiece_model.h"

namespace espalier::text::internal {

class SentencePieceBpe {
 public:
  struct Node {
    int32_t id;  // -1: no piece
    uint32_t begin, end;
  };
  struct Scratch {
    std::vector<int32_t> symbols;
    BpeMerges::Scratch merges;
  };

  // `kept`: the user-defined pieces, which nothing is joined to. The model and `kept` must outlive this.
  SentencePieceBpe(const SentencePieceModel& model, const PieceTrie& kept);

  // Appends the pieces of `text` (valid UTF-8, not empty).
  void cut(std::string_view text, Scratch& scratch, std::vector<Node>& nodes) const;

 private:
  static constexpr int32_t kNoSymbol = -2;  // of a character that is in no piece

  int32_t symbol_of(std::string_view text) const { return table_.find(text); }
  void number_characters(const SentencePieceModel& model);
  void add_merges(const SentencePieceModel& model);
  void name_symbols(const SentencePieceModel& model);

  const PieceTrie& kept_;
  PieceTable table_;                     // text of a symbol to its number: ids, then characters that are not pieces
  std::vector<int32_t> id_of_symbol_;    // -1: none
  std::vector<uint32_t> symbol_bytes_;   // length
  std::vector<std::string> characters_;  // those that are not pieces
  BpeMerges merges_;
};

}  // namespace espalier::text::internal
