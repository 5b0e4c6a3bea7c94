// KenLM's hash tables: words by MurmurHash64A, n-grams by a chain of products from their last word backwards. The sign
// of a probability, which is never above 0, says whether no longer n-gram ends with this one.
#include <algorithm>
#include <cmath>

#include "curate/lm/internal/kenlm_file.h"

namespace espalier::curate {
namespace {

// Open addressing by linear probing: entries of a fixed size that begin with their key; 0 is free.
struct HashTable {
  uint64_t offset = 0, buckets = 0, entry_bytes = 0;

  uint64_t end() const { return offset + buckets * entry_bytes; }
  // Where the value of the key is in the file; 0 where it is not there.
  uint64_t find(const KenlmFile& file, uint64_t key) const {
    uint64_t bucket = key % buckets;
    for (uint64_t tried = 0; tried < buckets; ++tried) {
      const uint64_t at = offset + bucket * entry_bytes;
      const auto found = file.at<uint64_t>(at);
      if (found == key) return at + sizeof found;
      if (found == 0) return 0;
      if (++bucket == buckets) bucket = 0;
    }
    return 0;
  }
};

// What KenLM rounds in floats is rounded in floats here.
HashTable table_at(uint64_t offset, uint64_t entries, float multiplier, uint64_t entry_bytes) {
  const auto scaled = static_cast<uint64_t>(multiplier * static_cast<float>(entries));
  return {offset, std::max(entries + 1, scaled), entry_bytes};
}

class ProbingTable : public NgramTable {
 public:
  explicit ProbingTable(KenlmFile file) : file_(std::move(file)) {
    const float multiplier = file_.probing_multiplier();
    const uint64_t weight_bytes = file_.kind() == KenlmKind::kRestProbing ? 12 : 8;
    const uint64_t vocabulary = file_.header_bytes();
    words_ = table_at(vocabulary + 8, file_.count(1), multiplier, 12);
    file_.check_reaches(words_.end());
    if (const auto version = file_.at<uint32_t>(vocabulary); version != 0)
      file_.fail("expected version 0 of the vocabulary, found ", version);
    num_words_ = file_.at<uint32_t>(vocabulary + 4);
    if (num_words_ == 0 || num_words_ > file_.count(1) + 1)
      file_.fail(num_words_, " words, where the header has ", file_.count(1), " 1-grams");
    unigrams_ = words_.end();
    unigram_bytes_ = weight_bytes;
    uint64_t at = unigrams_ + (file_.count(1) + 1) * weight_bytes;
    for (int length = 2; length <= file_.order(); ++length) {
      const uint64_t value_bytes = length == file_.order() ? 4 : weight_bytes;
      tables_.push_back(table_at(at, file_.count(length), multiplier, sizeof(uint64_t) + value_bytes));
      at = tables_.back().end();
    }
    file_.check_reaches(at);
  }

  int order() const override { return file_.order(); }
  uint32_t id_of(std::string_view word) const override {
    const uint64_t at = words_.find(file_, kenlm_word_hash(word));
    if (at == 0) return 0;
    const auto id = file_.at<uint32_t>(at);
    if (id >= num_words_) file_.fail("damaged: word ", id, " of ", num_words_);
    return id;
  }
  NgramEntry unigram(uint32_t word, NgramNode& node) const override {
    node.first = word;
    return entry_at(unigrams_ + word * unigram_bytes_, true);
  }
  NgramEntry longer(int length, uint32_t word, NgramNode& node) const override {
    node.first = (node.first * 8978948897894561157ULL) ^ ((uint64_t{1} + word) * 17894857484156487943ULL);
    const uint64_t at = tables_[static_cast<size_t>(length) - 2].find(file_, node.first);
    if (at == 0) return {};
    return entry_at(at, length < order());
  }
  std::string description() const override {
    return concat(order(), "-grams of KenLM's hash tables",
                  file_.kind() == KenlmKind::kRestProbing ? " with rest costs" : "");
  }

 private:
  NgramEntry entry_at(uint64_t at, bool has_backoff) const {
    const auto signed_probability = file_.at<float>(at);
    return {true, !std::signbit(signed_probability), -std::fabs(signed_probability),
            has_backoff ? file_.at<float>(at + 4) : 0};
  }

  KenlmFile file_;
  HashTable words_;
  std::vector<HashTable> tables_;  // of 2 words and more
  uint64_t unigrams_ = 0, unigram_bytes_ = 0;
  uint32_t num_words_ = 0;
};

}  // namespace

std::unique_ptr<NgramTable> open_probing_table(KenlmFile file) {
  return std::make_unique<ProbingTable>(std::move(file));
}

}  // namespace espalier::curate
