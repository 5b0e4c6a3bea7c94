#include "text/internal/sentencepiece_encoder.h"

#include <cmath>

#include "text/internal/word_cache.h"

namespace espalier::text::internal {

class SentencePieceEncoder::Cache {
 public:
  explicit Cache(const SentencePieceProcessor& processor)
      : processor_(processor), unknown_id_(processor.model().unknown_id) {}

  void start_text() {
    total_ = 0;
    after_unknown_ = false;
  }

  void add(std::string_view word, std::vector<int32_t>& ids) {
    if (word.size() > WordCache::kMaxWordBytes) return add_uncached(word, ids);
    WordCache::Slot& slot = words_.slot(word);
    if (!slot.holds(word)) fill(slot, word);
    const double before = processor_.has_sums() ? processor_.started(total_) : 0;
    if (!(std::abs(before) <= static_cast<double>(slot.limit))) return add_uncached(word, ids);
    if (processor_.has_sums()) {
      total_ = before;
      for (const int32_t id : slot.found()) total_ = processor_.added(total_, id);
    }
    append(slot.found(), ids);
  }

 private:
  static constexpr float kNever = -1, kAlways = 1e30f;

  void fill(WordCache::Slot& slot, std::string_view word) {
    fresh_.clear();
    const double limit = processor_.cut_word_with_limit(word, scratch_, fresh_);
    // Rounded down, so that it still holds.
    const float stored = limit < 0 ? kNever : limit > 1e30 ? kAlways : static_cast<float>(limit * (1 - 1e-6));
    if (!WordCache::store(slot, word, fresh_, stored)) WordCache::store(slot, word, {}, kNever);
  }

  void add_uncached(std::string_view word, std::vector<int32_t>& ids) {
    fresh_.clear();
    processor_.cut_word(word, total_, scratch_, fresh_);
    append(fresh_, ids);
  }

  // Neighbouring unknown characters are one id.
  void append(std::span<const int32_t> found, std::vector<int32_t>& ids) {
    for (const int32_t id : found) {
      const bool unknown = id == unknown_id_;
      if (!unknown || !after_unknown_) ids.push_back(id);
      after_unknown_ = unknown;
    }
  }

  const SentencePieceProcessor& processor_;
  const int32_t unknown_id_;
  WordCache words_;
  std::vector<int32_t> fresh_;
  SentencePieceProcessor::Scratch scratch_;
  double total_ = 0;
  bool after_unknown_ = false;
};

SentencePieceEncoder::SentencePieceEncoder(const SentencePieceProcessor& processor)
    : processor_(processor), cache_(std::make_unique<Cache>(processor)) {}
SentencePieceEncoder::~SentencePieceEncoder() = default;

void SentencePieceEncoder::encode(std::string_view text, std::vector<int32_t>& ids) {
  processor_.normalizer().apply(text, normalized_);
  cache_->start_text();
  for (std::string_view left = normalized_; !left.empty();) {
    const size_t end = processor_.word_end(left);
    cache_->add(left.substr(0, end), ids);
    left.remove_prefix(end);
  }
}

}  // namespace espalier::text::internal
