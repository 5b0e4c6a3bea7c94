// What an n-gram language model knows, whatever its layout in memory; ngram_model.h uses it.
//
// An n-gram is looked up from its last word backwards: unigram(w), then longer(2, the word before w), and so on; the
// node says where in the table that is. Words are numbers below num_words(); 0 is the unknown word.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"

namespace espalier::curate {

// The longest n-grams of a model that is read; KenLM itself has 6 unless it is built for more.
inline constexpr int kMostNgramWords = 16;

struct NgramEntry {
  bool is_there = false;
  bool goes_on = false;   // a longer n-gram may end with this one, or with what is missing here
  float probability = 0;  // log10, of the last word after the others
  float backoff = 0;      // log10; 0 for the longest
};

struct NgramNode {
  uint64_t first = 0, second = 0;  // a table's own
};

class NgramTable {
 public:
  virtual ~NgramTable() = default;
  virtual int order() const = 0;  // words of the longest n-grams
  virtual uint32_t id_of(std::string_view word) const = 0;
  virtual NgramEntry unigram(uint32_t word, NgramNode& node) const = 0;
  // The n-gram of `length` words whose first is `word` and whose rest is the node's, which becomes this one's. Any
  // thread.
  virtual NgramEntry longer(int length, uint32_t word, NgramNode& node) const = 0;
  virtual std::string description() const = 0;  // "ARPA", "KenLM's trie, quantized"
};

// The text format of n-gram models, plain or compressed (kept in memory: 24 bytes an n-gram). Refuses what KenLM
// refuses: positive probabilities, words that are no unigram, contexts that are no n-gram, a model without <s> or </s>.
std::unique_ptr<NgramTable> read_arpa(const std::string& file);

// Whether the file begins as KenLM's binary files do.
bool is_kenlm_binary(const std::string& file);
// KenLM's binary file of format 5, mapped: hash tables (with rest costs too, which perplexity does not need) or tries
// (quantized, with compressed pointers, or both), as build_binary writes them on little-endian machines of 64 bits.
// Sizes and pointers are checked where they are followed; a damaged file is a UserError.
std::unique_ptr<NgramTable> open_kenlm_binary(const std::string& file);

}  // namespace espalier::curate
