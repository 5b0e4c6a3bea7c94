// The ids of words, one thread's: a table of 4 MiB that forgets a word when another needs its place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "text/internal/piece_table.h"

namespace espalier::text::internal {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 40, kMaxIds = 20;

  struct alignas(64) Slot {
    char key[kMaxWordBytes];
    uint8_t size = 0, count = 0;
    float limit = 0;  // the owner's
    int32_t ids[kMaxIds];

    bool holds(std::string_view word) const {
      return size == word.size() && std::memcmp(key, word.data(), word.size()) == 0;
    }
    std::span<const int32_t> found() const { return {ids, count}; }
  };

  // The only place where `word`, of 1 to kMaxWordBytes bytes, may be.
  Slot& slot(std::string_view word) { return slots_[hash_bytes(word.data(), word.size()) & (kNumSlots - 1)]; }

  // Puts the word there; false if it has too many ids.
  static bool store(Slot& slot, std::string_view word, std::span<const int32_t> ids, float limit = 0) {
    if (ids.size() > kMaxIds) return false;
    std::memcpy(slot.key, word.data(), word.size());
    std::copy(ids.begin(), ids.end(), slot.ids);
    slot.size = static_cast<uint8_t>(word.size());
    slot.count = static_cast<uint8_t>(ids.size());
    slot.limit = limit;
    return true;
  }

  // Appends the ids of a word that depends on nothing else; make(ids) appends those of one that is not in it.
  template <class Make>
  void append(std::string_view word, std::vector<int32_t>& ids, Make&& make) {
    if (word.size() > kMaxWordBytes || word.empty()) return make(ids);
    Slot& place = slot(word);
    if (place.holds(word)) {
      ids.insert(ids.end(), place.ids, place.ids + place.count);
      return;
    }
    const size_t before = ids.size();
    make(ids);
    store(place, word, std::span<const int32_t>(ids).subspan(before));
  }

 private:
  static constexpr size_t kNumSlots = size_t{1} << 15;
  std::vector<Slot> slots_ = std::vector<Slot>(kNumSlots);
};

}  // namespace espalier::text::internal
