// Text to ids with a SentencePiece model: SentencePieceProcessor::Encode of sentencepiece 0.2.3, and its Decode.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/internal/sentencepiece_bpe.h"
#include "text/internal/sentencepiece_model.h"
#include "text/internal/sentencepiece_normalizer.h"
#include "text/internal/unigram.h"

namespace espalier::text::internal {

// Immutable once made.
class SentencePieceProcessor {
 public:
  // Refuses what is not supported by name; `where` is the file.
  SentencePieceProcessor(SentencePieceModel model, const std::string& where);
  SentencePieceProcessor(SentencePieceProcessor&&) = delete;  // its parts point into it

  const SentencePieceModel& model() const { return model_; }
  const SentencePieceNormalizer& normalizer() const { return *normalizer_; }
  // As PieceToId: names before pieces, and the unknown piece for what is neither.
  int32_t piece_to_id(std::string_view piece) const;
  std::optional<int32_t> find(std::string_view piece) const;
  // The id of a control piece of this name.
  std::optional<int32_t> control_id(const std::string& piece) const;
  std::string decode(std::span<const int32_t> ids) const;

  // What a word (a stretch that no piece crosses) is cut into.
  struct Scratch {
    Unigram::Scratch unigram;
    std::vector<Unigram::Node> unigram_nodes;
    SentencePieceBpe::Scratch bpe;
    std::vector<SentencePieceBpe::Node> bpe_nodes;
  };
  // Appends the ids of a word, the unknown one for each character without a piece (or its bytes' with byte_fallback).
  // `total` is the unigram's running sum.
  void cut_word(std::string_view word, double& total, Scratch& scratch, std::vector<int32_t>& ids) const;
  // The same for a cache: returns the largest sum for which the ids hold (Unigram::cut_with_limit).
  double cut_word_with_limit(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
  double added(double total, int32_t id) const { return unigram_->added(total, id == model_.unknown_id ? -1 : id); }
  double started(double total) const { return unigram_->started(total); }
  bool has_sums() const { return unigram_ != nullptr; }
  // Where the word at the start of `text` ends.
  size_t word_end(std::string_view text) const;

 private:
  void make_unigram();
  void find_joined_characters();
  void append_ids(std::string_view word, int32_t id, size_t begin, size_t end, std::vector<int32_t>& ids) const;
  void cut_bpe(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

  SentencePieceModel model_;
  std::unordered_map<std::string, int32_t> names_, pieces_;
  PieceTrie kept_;  // user-defined pieces
  bool has_kept_ = false;
  std::unique_ptr<SentencePieceNormalizer> normalizer_, denormalizer_;
  std::unique_ptr<Unigram> unigram_;
  std::unique_ptr<SentencePieceBpe> bpe_;
  std::unordered_set<char32_t> joined_characters_;  // after which some piece has a visible blank
  std::vector<int32_t> decoded_id_;                 // of the piece's text, by id
};

// One thread's state: buffers and a bounded cache of words.
class SentencePieceEncoder {
 public:
  explicit SentencePieceEncoder(const SentencePieceProcessor& processor);
  ~SentencePieceEncoder();
  // Appends the ids of valid UTF-8.
  void encode(std::string_view text, std::vector<int32_t>& ids);

 private:
  class Cache;
  const SentencePieceProcessor& processor_;
  std::unique_ptr<Cache> cache_;
  std::string normalized_;
};

}  // namespace espalier::text::internal
