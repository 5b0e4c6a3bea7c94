// Learns the merges of a byte-level BPE from words and their counts: the order of Hugging Face tokenizers' BpeTrainer.
//
// The most frequent pair of neighbouring symbols becomes a new symbol, again and again; among equals the pair with the
// smallest ids. A merge touches only the words that hold its pair, and the queue of candidates learns of a count that
// fell when it meets the candidate.
//
// A piece is made by one merge only: what happens inside its bytes does not depend on what is around them, since
// merges go from left to right and none crosses its ends. So a pair gets all its occurrences in one step, when the
// later of its symbols is made, and its count only falls from then on: pairs below the minimum are not even kept.
// Unlike upstream's, counts do not wrap around at 2^31.
#pragma once

#include <cstdint>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "text/internal/pair_counts.h"

namespace espalier::text::internal {

class MergeLearner {
 public:
  // Symbols: the special tokens in their order, then the 256 bytes in the order of the characters that stand for them.
  // Pairs that occur less than `min_frequency` times are not merged.
  MergeLearner(const std::vector<std::string>& special_tokens, int64_t min_frequency);

  // For that many words with that many bytes in all. Words of one byte need not be counted.
  void reserve(int64_t num_words, int64_t num_bytes);
  // About how much memory the learner takes with these.
  static int64_t needed_bytes(int64_t num_words, int64_t num_bytes, int64_t min_frequency);
  // Each word once.
  void add_word(std::string_view bytes, int64_t count);

  // Once, after all words. Ends when there are `vocab_size` symbols or no pair is frequent enough; `progress` advances
  // by the new symbols.
  void learn(int64_t vocab_size, Progress& progress);

  const std::vector<std::string>& pieces() const { return pieces_; }  // by id; bytes as their characters
  const std::vector<std::pair<int32_t, int32_t>>& merges() const { return merges_; }  // ids, in their order

 private:
  using WordList = std::vector<uint32_t>;  // ascending
  struct Candidate {
    int64_t count;  // when it was put there: an upper bound
    SymbolPair pair;
    uint32_t words;  // that held it then: an index into lists_, or the only one
    bool is_only_word;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  // What one merge does to the pairs with a certain neighbour: as many old ones vanish as new ones appear.
  struct Change {
    int64_t count = 0;
    WordList words;
  };
  class Changes {
   public:
    void note(int32_t neighbour, int64_t count, uint32_t word);
    Change& operator[](int32_t neighbour) { return by_neighbour_[static_cast<size_t>(neighbour)]; }
    void resize(size_t num_symbols) { by_neighbour_.resize(num_symbols); }
    std::vector<int32_t> touched;

   private:
    std::vector<Change> by_neighbour_;
  };

  int32_t id_of(const std::string& piece);
  void count_pairs();
  void push(SymbolPair pair, int64_t count, const WordList& words);
  WordList take_words(const Candidate& candidate);
  void merge(const Candidate& top);
  void merge_in_word(uint32_t word, SymbolPair pair, int32_t merged);
  void apply_changes(SymbolPair pair, int32_t merged);

  std::vector<std::string> pieces_;
  std::unordered_map<std::string, int32_t> ids_;
  int32_t byte_ids_[256];
  std::vector<std::pair<int32_t, int32_t>> merges_;

  std::vector<int32_t> symbols_;  // of all words, one word after another; merging leaves gaps
  std::vector<uint64_t> begins_;  // of each word in symbols_
  std::vector<uint32_t> lengths_;
  std::vector<int64_t> counts_;

  int64_t floor_;  // pairs below it are not kept; at least 1
  PairCounts pair_counts_;
  std::priority_queue<Candidate> queue_;
  std::vector<WordList> lists_;
  std::vector<uint32_t> free_lists_;
  Changes left_, right_;  // of the current merge
};

}  // namespace espalier::text::internal
