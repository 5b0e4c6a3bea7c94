// What the units of numpy_words.h have in common. Each compiles it for its own instruction set, hence the unnamed
// namespace.
#pragma once

#include <bit>

#include "data/internal/numpy_words.h"

namespace espalier::data::internal {
namespace {

constexpr size_t kNumWords = NumpyWords::kSize, kDistance = 397;

inline uint32_t twist(uint32_t high, uint32_t low) {
  const uint32_t joined = (high & 0x80000000u) | (low & 0x7fffffffu);
  return (joined >> 1) ^ (-(low & 1u) & 0x9908b0dfu);
}

// The next state is written apart from the last, so that the compiler sees loops without dependences: an entry needs
// one that is 227 places before it.
inline void next_block(NumpyWords& block) {
  constexpr size_t kFirst = kNumWords - kDistance;
  alignas(64) uint32_t next[kNumWords];
  const uint32_t* const state = block.state;
  for (size_t at = 0; at < kFirst; ++at) next[at] = state[at + kDistance] ^ twist(state[at], state[at + 1]);
  for (size_t at = kFirst; at < 2 * kFirst; ++at) next[at] = next[at - kFirst] ^ twist(state[at], state[at + 1]);
  for (size_t at = 2 * kFirst; at < kNumWords - 1; ++at) next[at] = next[at - kFirst] ^ twist(state[at], state[at + 1]);
  next[kNumWords - 1] = next[kDistance - 1] ^ twist(state[kNumWords - 1], next[0]);
  for (size_t at = 0; at < kNumWords; ++at) {
    uint32_t word = next[at];
    block.state[at] = word;
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680u;
    word ^= (word << 15) & 0xefc60000u;
    block.words[at] = word ^ (word >> 18);
  }
  block.next = 0;
}

// Takes the words [used, end) whose masked value is small enough, until `wanted` are; `maximum` is that of partners[0].
// Without a branch on the value, which nothing could predict.
struct Taken {
  size_t words, partners;
};
inline Taken take_one_by_one(const uint32_t* words, size_t end, uint32_t mask, uint32_t maximum, size_t wanted,
                             uint32_t* partners) {
  size_t used = 0, got = 0;
  while (used < end && got < wanted) {
    const uint32_t value = words[used++] & mask;
    partners[got] = value;
    got += value <= maximum - static_cast<uint32_t>(got);
  }
  return {used, got};
}

// Select has kGroup and `static bool take_group(words, mask, bounds of sure and possible values, partners, got)`, which
// takes kGroup words at once, or none and says no where the order of the words decides about one of them.
template <class Select>
inline void draw_with(NumpyWords& block, uint32_t maximum, size_t count, uint32_t* partners) {
  constexpr size_t kGroup = Select::kGroup;
  while (count > 0) {
    // Up to the next power of two all maxima have one mask.
    const uint32_t mask = ~uint32_t{0} >> std::countl_zero(maximum);
    const size_t of_mask = maximum - (mask >> 1);
    const size_t wanted = count < of_mask ? count : of_mask;
    size_t got = 0;
    while (got < wanted) {
      if (block.next == kNumWords) next_block(block);
      size_t group = 0;
      if constexpr (kGroup > 1) {
        while (kNumWords - block.next >= kGroup && wanted - got >= kGroup) {
          const uint32_t bound = maximum - static_cast<uint32_t>(got);
          size_t taken;
          if (!Select::take_group(block.words + block.next, mask, bound, partners + got, taken)) break;
          got += taken;
          block.next += kGroup;
        }
        group = kGroup;
      }
      size_t end = kNumWords - block.next;
      if (group != 0 && end > group) end = group;
      const Taken taken = take_one_by_one(block.words + block.next, end, mask, maximum - static_cast<uint32_t>(got),
                                          wanted - got, partners + got);
      block.next += taken.words;
      got += taken.partners;
    }
    maximum -= static_cast<uint32_t>(wanted);
    count -= wanted;
    partners += wanted;
  }
}

}  // namespace
}  // namespace espalier::data::internal
