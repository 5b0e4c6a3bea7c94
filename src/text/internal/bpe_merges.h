// The merges of a byte-pair encoding: which two neighbouring symbols become which one, and in what order.
//
// merge() repeatedly joins the leftmost pair of the lowest rank until no neighbours have a merge. Short words are
// scanned, long ones kept in a heap: O(n log n), so a word of a megabyte takes a fraction of a second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::text::internal {

struct Merge {
  uint32_t rank;   // position in the list of merges; kNoMerge if there is none
  int32_t merged;  // the symbol that takes the place of both
};
constexpr uint32_t kNoMerge = UINT32_MAX;

class BpeMerges {
 public:
  // Buffers of merge(), reused between calls; one per thread.
  struct Scratch {
    std::vector<uint64_t> heap;
    std::vector<int32_t> next, previous;
  };

  explicit BpeMerges(size_t expected = 0);

  // The next merge has the next rank. A pair that existed before gets the new rank and result.
  void add(int32_t left, int32_t right, int32_t merged) { add_ranked(left, right, merged, next_rank_++); }
  // For merges that may share a rank: of neighbours with equal ranks the leftmost are merged first.
  void add_ranked(int32_t left, int32_t right, int32_t merged, uint32_t rank);

  Merge find(int32_t left, int32_t right) const {
    const uint64_t hash = hash_of(left, right);
    if (!may_exist(hash)) return {kNoMerge, 0};
    for (size_t slot = slot_of(hash);; slot = (slot + 1) & mask_) {
      const Entry& entry = entries_[slot];
      if (entry.left == left && entry.right == right) return {entry.rank, entry.merged};
      if (entry.rank == kNoMerge) return {kNoMerge, 0};
    }
  }

  // Merges in place: symbols[0 .. count) become symbols[0 .. returned).
  size_t merge(int32_t* symbols, size_t count, Scratch& scratch) const;

  size_t size() const { return num_merges_; }

 private:
  struct Entry {
    int32_t left, right;
    uint32_t rank;
    int32_t merged;
  };

  static uint64_t hash_of(int32_t left, int32_t right) {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    return key * 0x9E3779B97F4A7C15u;
  }
  size_t slot_of(uint64_t hash) const { return static_cast<size_t>(hash >> shift_); }
  // Eight bits for each slot, a sixteenth of what the entries take. Most pairs that are asked for have no merge, and
  // the bits, which the second-level cache holds for most vocabularies, tell it of all but a few of them.
  size_t bit_of(uint64_t hash) const { return static_cast<size_t>(hash >> (shift_ - 3)); }
  bool may_exist(uint64_t hash) const { return (exists_[bit_of(hash) / 64] >> (bit_of(hash) % 64) & 1) != 0; }
  void put(const Entry& entry);
  void grow();
  size_t merge_short(int32_t* symbols, size_t count) const;
  size_t merge_long(int32_t* symbols, size_t count, Scratch& scratch) const;

  std::vector<Entry> entries_;  // open addressing, at most half full
  std::vector<uint64_t> exists_;
  size_t mask_ = 0, num_merges_ = 0;
  int shift_ = 0;
  uint32_t next_rank_ = 0;
};

}  // namespace espalier::text::internal
