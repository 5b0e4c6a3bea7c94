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
  exists_.assign(slots / 8, 0);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void BpeMerges::add_ranked(int32_t left, int32_t right, int32_t merged, uint32_t rank) {
  ESPALIER_CHECK(rank < kNoMerge, "too many merges");
  if (2 * (num_merges_ + 1) > entries_.size()) grow();
  put({left, right, rank, merged});
}

void BpeMerges::put(const Entry& entry) {
  const uint64_t hash = hash_of(entry.left, entry.right);
  size_t slot = slot_of(hash);
  while (entries_[slot].rank != kNoMerge && !(entries_[slot].left == entry.left && entries_[slot].right == entry.right))
    slot = (slot + 1) & mask_;
  if (entries_[slot].rank == kNoMerge) ++num_merges_;
  entries_[slot] = entry;
  exists_[bit_of(hash) / 64] |= uint64_t{1} << (bit_of(hash) % 64);
}

void BpeMerges::grow() {
  BpeMerges larger(entries_.size());
  for (const Entry& entry : entries_)
    if (entry.rank != kNoMerge) larger.put(entry);
  larger.next_rank_ = next_rank_;
  *this = std::move(larger);
}

size_t BpeMerges::merge(int32_t* symbols, size_t count, Scratch& scratch) const {
  if (count < 2) return count;
  if (count > kLongWord) return merge_long(symbols, count, scratch);
  return merge_short(symbols, count);
}

size_t BpeMerges::merge_short(int32_t* symbols, size_t count) const {
  // Of the pair (symbols[i], symbols[i + 1]).
  uint32_t ranks[kLongWord];
  int32_t merged[kLongWord];
  const auto look_up = [&](size_t i) {
    const Merge merge = find(symbols[i], symbols[i + 1]);
    ranks[i] = merge.rank, merged[i] = merge.merged;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoMerge) break;
    symbols[best] = merged[best];
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    if (best + 2 < count) {
      std::copy(ranks + best + 2, ranks + count - 1, ranks + best + 1);
      std::copy(merged + best + 2, merged + count - 1, merged + best + 1);
    }
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
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
