// KenLM's tries: words sorted by MurmurHash64A, and for each length an array of bit-packed n-grams, sorted by their
// first word below the rest that they share (the trie goes from the last word backwards). The n-grams below entry i are
// those from next(i) to next(i + 1). Quantized tries hold numbers of bins; array-compressed ones keep the upper bits of
// the pointers apart (Raj and Whittaker 2003; Heafield 2011).
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "curate/lm/internal/kenlm_file.h"

namespace espalier::curate {
namespace {

uint32_t bits_for(uint64_t greatest) { return static_cast<uint32_t>(std::bit_width(greatest)); }
uint64_t mask_of(uint32_t bits) { return (uint64_t{1} << bits) - 1; }

// The n-grams of one length.
struct Level {
  uint64_t offset = 0, count = 0;
  uint32_t word_bits = 0, weight_bits = 0, next_bits = 0;
  uint64_t num_next = 0;                            // n-grams of the next length
  uint64_t high_offset = 0, high_count = 0;         // array-compressed: first entries of each value of the upper bits
  uint64_t probability_bins = 0, backoff_bins = 0;  // quantized: where the values are

  uint32_t entry_bits() const { return word_bits + weight_bits + next_bits; }
  // One entry more holds the last pointer; eight bytes more let the last be read as a whole.
  uint64_t num_bytes() const { return ((1 + count) * entry_bits() + 7) / 8 + sizeof(uint64_t); }
};

class TrieTable : public NgramTable {
 public:
  explicit TrieTable(KenlmFile file) : file_(std::move(file)) {
    is_quantized_ = file_.kind() == KenlmKind::kQuantizedTrie || file_.kind() == KenlmKind::kQuantizedArrayTrie;
    is_array_ = file_.kind() == KenlmKind::kArrayTrie || file_.kind() == KenlmKind::kQuantizedArrayTrie;
    const uint64_t vocabulary = file_.header_bytes(), num_unigrams = file_.count(1);
    hashes_ = vocabulary + 8;
    uint64_t at = hashes_ + num_unigrams * 8;
    file_.check_reaches(at);
    num_hashes_ = file_.at<uint64_t>(vocabulary);
    if (num_hashes_ > num_unigrams) file_.fail(num_hashes_, " words, where the header has ", num_unigrams, " 1-grams");
    if (is_quantized_) at = read_bins(at);
    unigrams_ = at;
    at += (num_unigrams + 2) * kUnigramBytes;
    file_.check_reaches(at);
    if (is_array_ && order() > 2) read_array_header(at);
    for (int length = 2; length <= order(); ++length) at = add_level(length, at);
    file_.check_reaches(at);
    if (is_quantized_) place_bins();
  }

  int order() const override { return file_.order(); }

  uint32_t id_of(std::string_view word) const override {
    const uint64_t hash = kenlm_word_hash(word);
    uint64_t begin = 0, end = num_hashes_;
    while (begin < end) {
      const uint64_t middle = begin + (end - begin) / 2;
      const auto found = file_.at<uint64_t>(hashes_ + middle * 8);
      if (found == hash) return static_cast<uint32_t>(middle + 1);  // 0 is the unknown word, which is not among them
      (found < hash ? begin : end) = found < hash ? middle + 1 : middle;
    }
    return 0;
  }

  NgramEntry unigram(uint32_t word, NgramNode& node) const override {
    const uint64_t at = unigrams_ + word * kUnigramBytes;
    node = {file_.at<uint64_t>(at + 8), file_.at<uint64_t>(at + kUnigramBytes + 8)};
    check(node, levels_.front());
    return {true, node.first < node.second, file_.at<float>(at), file_.at<float>(at + 4)};
  }

  NgramEntry longer(int length, uint32_t word, NgramNode& node) const override {
    const Level& level = levels_[static_cast<size_t>(length) - 2];
    uint64_t begin = node.first, end = node.second;
    while (begin < end) {
      const uint64_t middle = begin + (end - begin) / 2;
      const uint64_t found = read(level, middle * level.entry_bits(), level.word_bits);
      if (found == word) return entry_of(length, level, middle, node);
      (found < word ? begin : end) = found < word ? middle + 1 : middle;
    }
    return {};
  }

  std::string description() const override {
    return concat(order(), "-grams of KenLM's trie", is_quantized_ ? ", quantized" : "",
                  is_array_ ? ", with compressed pointers" : "");
  }

 private:
  static constexpr uint64_t kUnigramBytes = 16;

  uint64_t read_bins(uint64_t at) {
    file_.check_reaches(at + 8);
    if (const auto version = file_.at<uint8_t>(at); version != 2)
      file_.fail("expected version 2 of quantization, found ", int{version});
    probability_bits_ = file_.at<uint8_t>(at + 1);
    backoff_bits_ = file_.at<uint8_t>(at + 2);
    for (const uint32_t bits : {probability_bits_, backoff_bits_})
      if (bits < 1 || bits > 25) file_.fail("quantized to ", bits, " bits; 1 to 25 are possible");
    bins_ = at + 8;
    const uint64_t middle = sizeof(float) * ((uint64_t{1} << probability_bits_) + (uint64_t{1} << backoff_bits_));
    const uint64_t end = bins_ + (static_cast<uint64_t>(order()) - 2) * middle + (sizeof(float) << probability_bits_);
    file_.check_reaches(end);
    return end;
  }
  void place_bins() {
    uint64_t at = bins_;
    for (Level& level : levels_) {
      level.probability_bins = at;
      at += sizeof(float) << probability_bits_;
      level.backoff_bins = at;
      at += sizeof(float) << backoff_bits_;  // the last level has none
    }
  }

  void read_array_header(uint64_t at) {
    file_.check_reaches(at + 2);
    if (const auto version = file_.at<uint8_t>(at); version != 0)
      file_.fail("expected version 0 of array-compressed pointers, found ", int{version});
    most_high_bits_ = file_.at<uint8_t>(at + 1);
  }
  // How many upper bits of the pointers are kept apart: as many as make the whole smallest.
  uint32_t high_bits(uint64_t entries, uint64_t greatest) const {
    const uint32_t needed = bits_for(greatest);
    uint32_t best = 0;
    int64_t smallest = std::numeric_limits<int64_t>::max();
    for (uint32_t bits = 0; bits <= std::min(needed, most_high_bits_); ++bits) {
      const auto table_bits = static_cast<int64_t>((greatest >> (needed - bits)) * 64);
      const int64_t change = table_bits - static_cast<int64_t>(entries) * bits;
      if (change < smallest) {
        smallest = change;
        best = bits;
      }
    }
    return best;
  }

  uint64_t add_level(int length, uint64_t at) {
    const bool is_last = length == order();
    Level level;
    level.count = file_.count(length);
    level.word_bits = bits_for(file_.count(1));
    level.weight_bits = is_quantized_ ? probability_bits_ + (is_last ? 0 : backoff_bits_) : is_last ? 31 : 63;
    if (!is_last) {
      level.num_next = file_.count(length + 1);
      level.next_bits = bits_for(level.num_next);
      if (is_array_) {
        const uint32_t high = high_bits(level.count + 1, level.num_next);
        level.high_offset = (at + 7) / 8 * 8 + 8;
        level.high_count = (level.num_next >> (level.next_bits - high)) + 1;
        level.next_bits -= high;
        at += 8 * (1 + level.high_count) + 7;
      }
    }
    level.offset = at;
    levels_.push_back(level);
    return at + level.num_bytes();
  }

  uint64_t read(const Level& level, uint64_t bit, uint32_t bits) const {
    return (file_.at<uint64_t>(level.offset + bit / 8) >> (bit % 8)) & mask_of(bits);
  }
  float read_float(const Level& level, uint64_t bit, uint32_t bits, uint32_t with) const {
    return std::bit_cast<float>(static_cast<uint32_t>(read(level, bit, bits)) | with);
  }
  float bin(uint64_t bins, uint64_t number) const { return file_.at<float>(bins + number * sizeof(float)); }

  NgramEntry entry_of(int length, const Level& level, uint64_t index, NgramNode& node) const {
    constexpr uint32_t kNegative = 0x80000000;
    const bool is_last = length == order();
    const uint64_t bit = index * level.entry_bits() + level.word_bits;
    NgramEntry entry{true, false, 0, 0};
    if (is_quantized_) {
      const uint32_t skipped = is_last ? 0 : backoff_bits_;
      if (!is_last) entry.backoff = bin(level.backoff_bins, read(level, bit, backoff_bits_));
      entry.probability = bin(level.probability_bins, read(level, bit + skipped, probability_bits_));
    } else {
      entry.probability = read_float(level, bit, 31, kNegative);
      if (!is_last) entry.backoff = read_float(level, bit + 31, 32, 0);
    }
    if (is_last) return entry;
    const uint64_t next = bit + level.weight_bits;
    node.first = high_part(level, index) | read(level, next, level.next_bits);
    node.second = high_part(level, index + 1) | read(level, next + level.entry_bits(), level.next_bits);
    check(node, levels_[static_cast<size_t>(length) - 1]);
    entry.goes_on = node.first < node.second;
    return entry;
  }

  // The number of the last value of the upper bits that begins at or before the entry, in its place.
  uint64_t high_part(const Level& level, uint64_t index) const {
    if (level.high_count == 0) return 0;
    uint64_t begin = 0, end = level.high_count;  // the first that begins after it lies here
    while (begin < end) {
      const uint64_t middle = begin + (end - begin) / 2;
      const bool is_after = file_.at<uint64_t>(level.high_offset + middle * 8) > index;
      (is_after ? end : begin) = is_after ? middle : middle + 1;
    }
    if (begin == 0) file_.fail("damaged: the pointers of an array do not begin at 0");
    return (begin - 1) << level.next_bits;
  }

  void check(const NgramNode& node, const Level& level) const {
    if (node.first > node.second || node.second > level.count)
      file_.fail("damaged: n-grams from ", node.first, " to ", node.second, " of ", level.count);
  }

  KenlmFile file_;
  bool is_quantized_ = false, is_array_ = false;
  uint32_t probability_bits_ = 0, backoff_bits_ = 0, most_high_bits_ = 0;
  uint64_t hashes_ = 0, num_hashes_ = 0, unigrams_ = 0, bins_ = 0;
  std::vector<Level> levels_;  // of 2 words and more
};

}  // namespace

std::unique_ptr<NgramTable> open_trie_table(KenlmFile file) { return std::make_unique<TrieTable>(std::move(file)); }

}  // namespace espalier::curate
