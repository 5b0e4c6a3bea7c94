#include "text/internal/byte_bpe.h"

#include <algorithm>

#include "text/internal/piece_scanner.h"

namespace espalier::text::internal {

namespace {

// Zero-padded words of up to 16 bytes, loaded without reading past a page that may not exist.
struct ShortKey {
  uint64_t low, high;
};

constexpr size_t kMaxShort = 16, kMaxLong = 40;

ShortKey load_short(const char* data, size_t size) {
  uint64_t words[2] = {0, 0};
  std::memcpy(words, data, size);
  return {words[0], words[1]};
}

// The same where 16 bytes may be read.
inline ShortKey load_short_fast(const char* data, size_t size) {
  uint64_t words[2];
  std::memcpy(words, data, 16);
  if (size < 8) return {words[0] & ((uint64_t{1} << (8 * size)) - 1), 0};
  const uint64_t mask = size < 16 ? (uint64_t{1} << (8 * (size - 8))) - 1 : ~uint64_t{0};
  return {words[0], words[1] & mask};
}

}  // namespace

ByteBpe::ByteBpe(ByteBpeSource source) : source_(std::move(source)), whole_(source_.symbol_bytes.size()) {
  BpeMerges::Scratch scratch;
  std::vector<int32_t> symbols;
  for (size_t symbol = 0; symbol < source_.symbol_bytes.size(); ++symbol) {
    const std::string& bytes = source_.symbol_bytes[symbol];
    if (bytes.empty()) continue;
    symbols.clear();
    if (!source_.whole_words_first) merge_bytes(bytes, scratch, symbols);
    const auto whole = static_cast<int32_t>(symbol);
    if (source_.whole_words_first || (symbols.size() == 1 && symbols[0] == whole)) whole_.add(bytes, whole);
  }
}

void ByteBpe::encode_word(std::string_view word, BpeMerges::Scratch& scratch, std::vector<int32_t>& symbols) const {
  const int32_t whole = whole_.find(word);
  if (whole >= 0) {
    symbols.push_back(whole);
  } else {
    merge_bytes(word, scratch, symbols);
  }
}

void ByteBpe::merge_bytes(std::string_view word, BpeMerges::Scratch& scratch, std::vector<int32_t>& symbols) const {
  const size_t before = symbols.size();
  symbols.resize(before + word.size());
  for (size_t i = 0; i < word.size(); ++i) symbols[before + i] = source_.byte_symbols[static_cast<uint8_t>(word[i])];
  symbols.resize(before + source_.merges.merge(symbols.data() + before, word.size(), scratch));
}

// Two tables, by length of the word. Two short words share a cache line: a new one takes the second place, and moves to
// the first when it comes again, so that words seen once do not drive out common ones. A long word has a line of its
// own. Together 8 MiB, whatever is encoded; with 3 MiB a text in ten scripts, in which every third word is new, takes a
// fifth longer.
//
// Words wait in a short queue while their slots are fetched from memory, which hides most of the waiting (measured: 1.5
// times the rate of looking up each word as it is cut).
class ByteBpeEncoder::Cache {
 public:
  explicit Cache(const ByteBpe& bpe) : bpe_(bpe), short_(kNumPairs), long_(kNumLong) {}

  void add(const char* data, size_t size, bool may_read_16, std::vector<int32_t>& ids) {
    Waiting& word = queue_[queued_];
    word.data = data;
    word.size = size;
    if (size <= kMaxShort) {
      word.key = may_read_16 ? load_short_fast(data, size) : load_short(data, size);
      word.slot = mix_words(word.key.low ^ size, word.key.high) & (kNumPairs - 1);
      __builtin_prefetch(&short_[word.slot]);
    } else if (size <= kMaxLong) {
      word.slot = hash_bytes(data, size) & (kNumLong - 1);
      __builtin_prefetch(&long_[word.slot]);
    }
    if (++queued_ == kQueue) flush(ids);
  }

  // Appends the ids of the words that wait.
  void flush(std::vector<int32_t>& ids) {
    int32_t* next = output_;
    for (size_t i = 0; i < queued_; ++i) {
      const Waiting& word = queue_[i];
      if (word.size <= kMaxShort) {
        const ShortSlot* slot = find_short(word);
        if (slot != nullptr) {
          std::memcpy(next, slot->ids, sizeof slot->ids);
          next += slot->count;
          continue;
        }
      } else if (word.size <= kMaxLong) {
        LongSlot& slot = long_[word.slot];
        const bool known = slot.size == word.size && std::memcmp(slot.key, word.data, word.size) == 0;
        if (known || fill(slot, word)) {
          std::memcpy(next, slot.ids, sizeof slot.ids);
          next += slot.count;
          continue;
        }
      } else {
        encode(word);
      }
      // Too long for a slot: what was collected goes out first.
      ids.insert(ids.end(), output_, next);
      ids.insert(ids.end(), fresh_.begin(), fresh_.end());
      next = output_;
    }
    ids.insert(ids.end(), output_, next);
    queued_ = 0;
  }

 private:
  struct ShortSlot {
    ShortKey key{0, 0};
    uint8_t size = 0, count = 0;  // size 0: free
    int32_t ids[3];
  };
  struct alignas(64) ShortPair {
    ShortSlot often, once;
  };
  struct alignas(64) LongSlot {
    char key[kMaxLong];
    uint8_t size = 0, count = 0;
    int32_t ids[5];
  };
  struct Waiting {
    const char* data;
    size_t size;
    ShortKey key;
    size_t slot;
  };
  static constexpr size_t kNumPairs = size_t{1} << 16, kNumLong = size_t{1} << 16, kQueue = 64;

  static bool holds(const ShortSlot& slot, const Waiting& word) {
    return slot.key.low == word.key.low && slot.key.high == word.key.high && slot.size == word.size;
  }

  // Null if the word has too many ids, which then are in fresh_.
  const ShortSlot* find_short(const Waiting& word) {
    ShortPair& pair = short_[word.slot];
    if (holds(pair.often, word)) return &pair.often;
    if (holds(pair.once, word)) {
      std::swap(pair.often, pair.once);
      return &pair.often;
    }
    if (!fill_ids(pair.once, word)) return nullptr;
    pair.once.key = word.key;
    return &pair.once;
  }

  // Puts the word into the slot; false if it has too many ids, which then are in fresh_.
  bool fill(LongSlot& slot, const Waiting& word) {
    if (!fill_ids(slot, word)) return false;
    std::memcpy(slot.key, word.data, word.size);
    return true;
  }
  template <class Slot>
  bool fill_ids(Slot& slot, const Waiting& word) {
    encode(word);
    if (fresh_.size() > std::size(slot.ids)) return false;
    slot.size = static_cast<uint8_t>(word.size);
    slot.count = static_cast<uint8_t>(fresh_.size());
    std::copy(fresh_.begin(), fresh_.end(), slot.ids);
    return true;
  }

  void encode(const Waiting& word) {
    fresh_.clear();
    bpe_.encode_word({word.data, word.size}, scratch_, fresh_);
    for (int32_t& symbol : fresh_) symbol = bpe_.id_of_symbol(symbol);
  }

  const ByteBpe& bpe_;
  std::vector<ShortPair> short_;
  std::vector<LongSlot> long_;
  Waiting queue_[kQueue];
  size_t queued_ = 0;
  int32_t output_[kQueue * 5];
  std::vector<int32_t> fresh_;
  BpeMerges::Scratch scratch_;
};

ByteBpeEncoder::ByteBpeEncoder(const ByteBpe& bpe) : bpe_(bpe), cache_(std::make_unique<Cache>(bpe)) {}
ByteBpeEncoder::~ByteBpeEncoder() = default;

void ByteBpeEncoder::encode(PieceRule rule, std::string_view text, std::vector<int32_t>& ids) {
  const char* last_full_load = text.size() < 16 ? nullptr : text.data() + text.size() - 16;
  for_each_piece(rule, text, [&](const char* begin, const char* end) {
    cache_->add(begin, static_cast<size_t>(end - begin), begin <= last_full_load, ids);
  });
  cache_->flush(ids);
}

void ByteBpeEncoder::encode_piece(std::string_view piece, std::vector<int32_t>& ids) {
  if (piece.empty()) return;
  cache_->add(piece.data(), piece.size(), false, ids);
  cache_->flush(ids);
}

}  // namespace espalier::text::internal
