#include "text/internal/byte_bpe.h"

#include <algorithm>

#include "text/internal/piece_scanner.h"

namespace espalier::text::internal {

namespace {

// Zero-padded words of up to 16 bytes, loaded without reading past a page that may not be there.
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

// Two direct-mapped tables, by length of the word: a new word replaces what stood in its slot. One slot is half a cache
// line or a whole one. Together 3 MiB, whatever is encoded.
class ByteBpeEncoder::Cache {
 public:
  explicit Cache(const ByteBpe& bpe) : bpe_(bpe), short_(kNumShort), long_(kNumLong) {}

  void append(const char* data, size_t size, bool may_read_16, std::vector<int32_t>& ids) {
    if (size <= kMaxShort) {
      append_short(data, size, may_read_16 ? load_short_fast(data, size) : load_short(data, size), ids);
    } else {
      append_long({data, size}, ids);
    }
  }

 private:
  struct alignas(32) ShortSlot {
    ShortKey key{0, 0};
    uint8_t size = 0, count = 0;  // count 0: free
    int32_t ids[3];
  };
  struct alignas(64) LongSlot {
    char key[kMaxLong];
    uint8_t size = 0, count = 0;
    int32_t ids[5];
  };
  static constexpr size_t kNumShort = size_t{1} << 16, kNumLong = size_t{1} << 14;

  void append_short(const char* data, size_t size, ShortKey key, std::vector<int32_t>& ids) {
    const uint64_t hash = mix_words(key.low ^ size, key.high);
    ShortSlot& slot = short_[hash & (kNumShort - 1)];
    if (slot.key.low != key.low || slot.key.high != key.high || slot.size != size) [[unlikely]] {
      const std::vector<int32_t>& fresh = encode({data, size});
      if (fresh.size() > std::size(slot.ids)) {
        ids.insert(ids.end(), fresh.begin(), fresh.end());
        return;
      }
      slot.key = key;
      slot.size = static_cast<uint8_t>(size);
      slot.count = static_cast<uint8_t>(fresh.size());
      std::copy(fresh.begin(), fresh.end(), slot.ids);
    }
    ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
  }

  void append_long(std::string_view word, std::vector<int32_t>& ids) {
    if (word.size() > kMaxLong) {
      const std::vector<int32_t>& fresh = encode(word);
      ids.insert(ids.end(), fresh.begin(), fresh.end());
      return;
    }
    LongSlot& slot = long_[hash_bytes(word.data(), word.size()) & (kNumLong - 1)];
    if (slot.size != word.size() || std::memcmp(slot.key, word.data(), word.size()) != 0) {
      const std::vector<int32_t>& fresh = encode(word);
      if (fresh.size() > std::size(slot.ids)) {
        ids.insert(ids.end(), fresh.begin(), fresh.end());
        return;
      }
      std::copy(word.begin(), word.end(), slot.key);
      slot.size = static_cast<uint8_t>(word.size());
      slot.count = static_cast<uint8_t>(fresh.size());
      std::copy(fresh.begin(), fresh.end(), slot.ids);
    }
    ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
  }

  const std::vector<int32_t>& encode(std::string_view word) {
    fresh_.clear();
    bpe_.encode_word(word, scratch_, fresh_);
    for (int32_t& symbol : fresh_) symbol = bpe_.id_of_symbol(symbol);
    return fresh_;
  }

  const ByteBpe& bpe_;
  std::vector<ShortSlot> short_;
  std::vector<LongSlot> long_;
  std::vector<int32_t> fresh_;
  BpeMerges::Scratch scratch_;
};

ByteBpeEncoder::ByteBpeEncoder(const ByteBpe& bpe) : bpe_(bpe), cache_(std::make_unique<Cache>(bpe)) {}
ByteBpeEncoder::~ByteBpeEncoder() = default;

void ByteBpeEncoder::encode(PieceRule rule, std::string_view text, std::vector<int32_t>& ids) {
  const char* last_full_load = text.size() < 16 ? nullptr : text.data() + text.size() - 16;
  for_each_piece(rule, text, [&](const char* begin, const char* end) {
    cache_->append(begin, static_cast<size_t>(end - begin), begin <= last_full_load, ids);
  });
}

void ByteBpeEncoder::encode_piece(std::string_view piece, std::vector<int32_t>& ids) {
  if (!piece.empty()) cache_->append(piece.data(), piece.size(), false, ids);
}

}  // namespace espalier::text::internal
