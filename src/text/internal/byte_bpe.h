// Byte-pair encoding of byte strings: the fast path of every byte-level tokenizer.
//
// A symbol is a number below num_symbols(); every byte has one, so no text is unknown. Symbols are ids of the
// vocabulary, except that Megatron lets merges make pieces which the vocabulary lacks; these have symbols of their own
// and an id that replaces them on output.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/internal/bpe_merges.h"
#include "text/internal/piece_table.h"
#include "text/pretokenizer.h"

namespace espalier::text::internal {

// What a ByteBpe is built from.
struct ByteBpeSource {
  std::vector<std::string> symbol_bytes;  // by symbol; empty: no merge makes it
  std::array<int32_t, 256> byte_symbols;
  BpeMerges merges;
  std::vector<int32_t> id_of_symbol;  // empty: the symbols are the ids
  bool whole_words_first = false;     // "ignore_merges": a word that is in the vocabulary is taken as it is
};

class ByteBpe {
 public:
  explicit ByteBpe(ByteBpeSource source);

  // The symbols of `word` with nothing cached; appended.
  void encode_word(std::string_view word, BpeMerges::Scratch& scratch, std::vector<int32_t>& symbols) const;
  // The symbol of a word that is one symbol, or -1 when it must be merged to know.
  int32_t find_whole(std::string_view word, uint64_t hash) const { return whole_.find(word, hash); }
  int32_t id_of_symbol(int32_t symbol) const {
    return source_.id_of_symbol.empty() ? symbol : source_.id_of_symbol[static_cast<size_t>(symbol)];
  }

 private:
  void merge_bytes(std::string_view word, BpeMerges::Scratch& scratch, std::vector<int32_t>& symbols) const;

  ByteBpeSource source_;
  PieceTable whole_;  // the words that come out as one symbol: every entry was merged to see that it does
};

// One thread's state: a bounded cache of words and buffers.
class ByteBpeEncoder {
 public:
  explicit ByteBpeEncoder(const ByteBpe& bpe);
  ~ByteBpeEncoder();

  // Cuts valid UTF-8 into pieces and appends their ids.
  void encode(PieceRule rule, std::string_view text, std::vector<int32_t>& ids);
  // The ids of `text` as one piece.
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids);

 private:
  class Cache;
  const ByteBpe& bpe_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace espalier::text::internal
