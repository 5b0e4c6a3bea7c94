// The steps of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
//
//   uint64_t state = seed;
//   const uint64_t first = mix64(state += kMix64Step), second = mix64(state += kMix64Step);
#pragma once

#include <cstdint>

namespace espalier {

inline constexpr uint64_t kMix64Step = 0x9E3779B97F4A7C15ULL;

// A permutation of the 64-bit numbers, after which each bit depends on all of them.
constexpr uint64_t mix64(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

}  // namespace espalier
