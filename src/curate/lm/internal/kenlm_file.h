// What the readers of KenLM's binary files share: the header, and values out of a mapped file.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "curate/lm/ngram_table.h"

namespace espalier::curate {

// The kinds that build_binary makes, by their numbers in the file.
enum class KenlmKind : uint32_t {
  kProbing = 0,
  kRestProbing = 1,
  kTrie = 2,
  kQuantizedTrie = 3,
  kArrayTrie = 4,
  kQuantizedArrayTrie = 5,
};

// A mapped file whose header was read. Offsets count from the start of the file.
class KenlmFile {
 public:
  explicit KenlmFile(const std::string& file);

  KenlmKind kind() const { return kind_; }
  int order() const { return static_cast<int>(counts_.size()); }
  // N-grams of that many words; of one, the unknown word included.
  uint64_t count(int length) const { return counts_[static_cast<size_t>(length) - 1]; }
  float probing_multiplier() const { return probing_multiplier_; }
  uint64_t header_bytes() const { return header_bytes_; }

  template <class Value>
  Value at(uint64_t offset) const {
    Value value;
    std::memcpy(&value, mapped_.data() + offset, sizeof value);
    return value;
  }
  // Checks that the file reaches this far.
  void check_reaches(uint64_t end) const;
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw UserError(concat("'", file_, "': ", parts...), ExitCode::kBadData);
  }
  const uint8_t* data() const { return mapped_.data(); }
  uint64_t size() const { return mapped_.size(); }

 private:
  std::string file_;
  MappedFile mapped_;
  KenlmKind kind_ = KenlmKind::kProbing;
  float probing_multiplier_ = 0;
  uint64_t header_bytes_ = 0;
  std::vector<uint64_t> counts_;
};

// MurmurHash64A (Appleby) with seed 0: how KenLM names words.
uint64_t kenlm_word_hash(std::string_view word);

std::unique_ptr<NgramTable> open_probing_table(KenlmFile file);
std::unique_ptr<NgramTable> open_trie_table(KenlmFile file);

}  // namespace espalier::curate
