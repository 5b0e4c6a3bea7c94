// A unigram language model of pieces: a text becomes the pieces whose scores have the largest sum.
//
// Sums are made as the reference makes them, since a long text's decide between near-equal paths by how they are
// rounded: SentencePiece adds floats over a whole text and begins again at 0 beyond 100,000 (kFloat), tokenizers adds
// doubles over each word (kDouble).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/internal/piece_trie.h"

namespace espalier::text::internal {

class Unigram {
 public:
  enum class Sums { kFloat, kDouble };
  struct Node {
    int32_t id;  // -1: a character that no piece covers
    uint32_t begin, end;
  };
  // Reused between calls; one per thread.
  struct Scratch {
    struct Best {
      double total;
      int32_t id;
      uint32_t begin;
    };
    struct Rival {
      double total, second;  // of the best path to here and of the next best
      int32_t id;
      uint32_t begin;
    };
    std::vector<Best> best;
    std::vector<Rival> rivals;
  };

  // `unknown_score` is that of one character that no piece covers.
  explicit Unigram(Sums sums, size_t num_bytes_of_pieces = 0) : sums_(sums), trie_(num_bytes_of_pieces) {}
  void set_unknown_score(double score) { unknown_score_ = score; }
  double unknown_score() const { return unknown_score_; }
  void add(std::string_view piece, int32_t id, double score);
  // One that is chosen wherever it appears: a longer one scores better, and all better than other pieces.
  void add_user_defined(std::string_view piece, int32_t id);

  // Appends the pieces of `text` (valid UTF-8). `total` is the sum before the text and becomes the one after it. Throws
  // a UserError for a text that would take very long: 64 steps a byte, and 100 million.
  void cut(std::string_view text, double& total, Scratch& scratch, std::vector<Node>& nodes) const;

  // The same for a sum of 0 and exact additions; returns how large a sum before the text may be (in absolute value) for
  // the pieces to be those of cut() for sure. Below 0: not even 0 may.
  double cut_with_limit(std::string_view text, Scratch& scratch, std::vector<Node>& nodes) const;

  // The sum before a word, made as cut() makes it.
  double started(double total) const { return sums_ == Sums::kFloat && is_large(total) ? 0 : total; }
  // The sum after a piece.
  double added(double total, int32_t id) const {
    const double sum = total + (id < 0 ? unknown_score_ : scores_[static_cast<size_t>(id)]);
    return sums_ == Sums::kFloat ? static_cast<double>(static_cast<float>(sum)) : sum;
  }

 private:
  static bool is_large(double total) { return total < -kLargestSum || total > kLargestSum; }
  static constexpr double kLargestSum = 100'000;
  class StepLimit;
  template <class Score>
  void cut_as(std::string_view text, double& total, Scratch& scratch, std::vector<Node>& nodes) const;

  Sums sums_;
  PieceTrie trie_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  double largest_score_ = 0;  // in absolute value
};

}  // namespace espalier::text::internal
