// A count for each pair of symbols: a hash table with open addressing, 16 bytes a slot.
//
// Counts only fall once they are set. A pair that fell below the floor may be forgotten: it counts 0 or what is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::text::internal {

// Two symbols as one number; numbers are ordered as (first, second).
using SymbolPair = uint64_t;

inline SymbolPair make_pair_of(int32_t first, int32_t second) {
  return static_cast<uint64_t>(static_cast<uint32_t>(first)) << 32 | static_cast<uint32_t>(second);
}
inline int32_t first_of(SymbolPair pair) { return static_cast<int32_t>(pair >> 32); }
inline int32_t second_of(SymbolPair pair) { return static_cast<int32_t>(pair & UINT32_MAX); }

class PairCounts {
 public:
  explicit PairCounts(int64_t floor) : floor_(floor), slots_(kFirstSlots) {}

  int64_t count(SymbolPair pair) const { return slots_[find(pair)].count; }

  // For a pair that was never set.
  void set(SymbolPair pair, int64_t count) {
    slots_[find(pair)] = {pair, count};
    if (++num_used_ * 8 > slots_.size() * 5) rebuild();
  }

  // Without effect on a pair that was not set.
  void subtract(SymbolPair pair, int64_t amount) {
    Slot& slot = slots_[find(pair)];
    if (slot.pair == pair) slot.count -= amount;
  }

 private:
  static constexpr size_t kFirstSlots = 1024;
  static constexpr SymbolPair kNone = UINT64_MAX;
  struct Slot {
    SymbolPair pair = kNone;
    int64_t count = 0;
  };

  // The slot of `pair`, or the empty one where it belongs.
  size_t find(SymbolPair pair) const {
    const size_t mask = slots_.size() - 1;
    size_t at = static_cast<size_t>(pair * 0x9E3779B97F4A7C15u >> 20) & mask;
    while (slots_[at].pair != pair && slots_[at].pair != kNone) at = (at + 1) & mask;
    return at;
  }

  // Forgets the pairs below the floor (most come to nothing), and doubles the slots if that was not enough.
  void rebuild() {
    num_used_ = 0;
    for (const Slot& slot : slots_) num_used_ += slot.count >= floor_ ? 1 : 0;
    std::vector<Slot> old(num_used_ * 8 > slots_.size() * 3 ? slots_.size() * 2 : slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.count >= floor_) slots_[find(slot.pair)] = slot;
    }
  }

  int64_t floor_;  // at least 1
  std::vector<Slot> slots_;
  size_t num_used_ = 0;
};

}  // namespace espalier::text::internal
