#include "text/internal/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.h"

namespace espalier::text::internal {

namespace {
// Up to this many symbols, looking for the lowest rank by scanning beats a heap.
constexpr size_t kLongWord = 96;
constexpr size_t kFewestSlots = 64;
}  // namespace

BpeMerges::BpeMerges(size_t expected) {
  const size_t slots = std::bit_ceil(std::max(kFewestSlots, 2 * expected + 2));
  entries_.assign(slots, Entry{-1, -1, kNoMerge, 0});
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void BpeMerges::add_ranked(int32_t left, int32_t right, int32_t merged, uint32_t rank) {
  ESPALIER_CHECK(rank < kNoMerge, "too many merges");
  if (2 * (num_merges_ + 1) > entries_.size()) grow();
  size_t slot = slot_of(left, right);
  while (entries_[slot].rank != kNoMerge && !(entries_[slot].left == left && entries_[slot].right == right)) {
    slot = (slot + 1) & mask_;
  }
  if (entries_[slot].rank == kNoMerge) ++num_merges_;
  entries_[slot] = {left, right, rank, merged};
}

void BpeMerges::grow() {
  BpeMerges larger(entries_.size());
  for (const Entry& entry : entries_) {
    if (entry.rank == kNoMerge) continue;
    size_t slot = larger.slot_of(entry.left, entry.right);
    while (larger.entries_[slot].rank != kNoMerge) slot = (slot + 1) & larger.mask_;
    larger.entries_[slot] = entry;
  }
  entries_ = std::move(larger.entries_);
  mask_ = larger.mask_;
  shift_ = larger.shift_;
}

size_t BpeMerges::merge(int32_t* symbols, size_t count, Scratch& scratch) const {
  if (count < 2) return count;
  if (count > kLongWord) return merge_long(symbols, count, scratch);
  uint32_t ranks[kLongWord];
  return merge_short(symbols, count, ranks);
}

// ranks[i] is the rank of the pair (symbols[i], symbols[i + 1]).
size_t BpeMerges::merge_short(int32_t* symbols, size_t count, uint32_t* ranks) const {
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = find(symbols[i], symbols[i + 1]).rank;
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoMerge) break;
    symbols[best] = find(symbols[best], symbols[best + 1]).merged;
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    if (best + 2 < count) std::copy(ranks + best + 2, ranks + count - 1, ranks + best + 1);
    --count;
    if (best > 0) ranks[best - 1] = find(symbols[best - 1], symbols[best]).rank;
    if (best + 1 < count) ranks[best] = find(symbols[best], symbols[best + 1]).rank;
  }
  return count;
}

// A heap of (rank, place) over a doubly linked list of symbols. An entry is stale when the pair at its place has
// another rank by now; a symbol that was swallowed has next = kGone.
size_t BpeMerges::merge_long(int32_t* symbols, size_t count, Scratch& scratch) const {
  constexpr int32_t kGone = -2, kNone = -1;
  ESPALIER_CHECK(count < static_cast<size_t>(INT32_MAX), "a word of ", count, " symbols");
  std::vector<uint64_t>& heap = scratch.heap;
  std::vector<int32_t>& next = scratch.next;
  std::vector<int32_t>& previous = scratch.previous;
  heap.clear();
  next.resize(count);
  previous.resize(count);
  const auto entry = [](uint32_t rank, int32_t place) {
    return static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(place);
  };
  for (size_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? static_cast<int32_t>(i + 1) : kNone;
    previous[i] = static_cast<int32_t>(i) - 1;
    if (i + 1 == count) break;
    const uint32_t rank = find(symbols[i], symbols[i + 1]).rank;
    if (rank != kNoMerge) heap.push_back(entry(rank, static_cast<int32_t>(i)));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push_pair = [&](int32_t left, int32_t right) {
    const uint32_t rank = find(symbols[left], symbols[right]).rank;
    if (rank == kNoMerge) return;
    heap.push_back(entry(rank, left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint32_t rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto left = static_cast<int32_t>(heap.back() & UINT32_MAX);
    heap.pop_back();
    if (next[left] < 0) continue;
    const int32_t right = next[left];
    const Merge merge = find(symbols[left], symbols[right]);
    if (merge.rank != rank) continue;
    symbols[left] = merge.merged;
    next[left] = next[right];
    next[right] = kGone;
    if (next[left] >= 0) previous[next[left]] = left;
    if (previous[left] >= 0) push_pair(previous[left], left);
    if (next[left] >= 0) push_pair(left, next[left]);
  }
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    if (next[i] != kGone) symbols[kept++] = symbols[i];
  }
  return kept;
}

}  // namespace espalier::text::internal
