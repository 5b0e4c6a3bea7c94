// The inner loops of minhash.h, written once over vectors of kBytes bytes; included by one file for each instruction
// set, each of which takes a size of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace espalier::curate::internal {

// A window of five bytes, as far as its hash depends on no seed (MurmurHash3's body and tail).
struct WindowHash {
  uint32_t body, tail;
};

constexpr size_t kMinHashPadding = 16;  // room for values is a multiple of this: one vector of AVX-512

inline constexpr uint64_t kMinHashFirst = 0x9FB21C651E98DF25ULL, kMinHashSecond = 0xD6E8FEB86659FD93ULL;

template <size_t kBytes>
struct MinHashLoops {
  typedef uint32_t U32 __attribute__((vector_size(kBytes)));
  typedef int32_t S32 __attribute__((vector_size(kBytes)));
  typedef uint64_t U64 __attribute__((vector_size(kBytes)));

  template <class Vector, class Value>
  static inline __attribute__((always_inline)) void load(Vector& vector, const Value* from) {
    std::memcpy(&vector, from, kBytes);
  }

  // Calls block(number of vectors, first value) for the vectors that hold `values` values. A block has up to four, as
  // even as they come: one of a single vector would wait for its multiplications.
  template <size_t kLanes, class Block>
  static inline __attribute__((always_inline)) void for_blocks(size_t values, Block block) {
    size_t left = (values + kLanes - 1) / kLanes;
    for (size_t at = 0, blocks = (left + 3) / 4; blocks > 0; --blocks) {
      const size_t vectors = (left + blocks - 1) / blocks;
      if (vectors == 4)
        block(std::integral_constant<int, 4>(), at);
      else if (vectors == 3)
        block(std::integral_constant<int, 3>(), at);
      else if (vectors == 2)
        block(std::integral_constant<int, 2>(), at);
      else
        block(std::integral_constant<int, 1>(), at);
      at += vectors * kLanes;
      left -= vectors;
    }
  }

  // MurmurHash3_x86_32 after its body: rotation and multiplication by 5, the tail, the length, the final mixture. The
  // rotation is spread over its operands: rot(seed ^ body) = rot(seed) ^ rot(body).
  template <int kVectors>
  static inline __attribute__((always_inline)) void windows_block(const WindowHash* windows, size_t count,
                                                                  const uint32_t* seeds, uint32_t* least) {
    U32 seed[kVectors];
    S32 minimum[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      load(seed[v], seeds + static_cast<size_t>(v) * (kBytes / 4));
      load(minimum[v], least + static_cast<size_t>(v) * (kBytes / 4));
    }
    for (size_t window = 0; window < count; ++window) {
      const uint32_t body = windows[window].body, tail = windows[window].tail;
      for (int v = 0; v < kVectors; ++v) {
        U32 h = seed[v] ^ body;
        h = (h << 2) + h + 0xE6546B64u;
        h ^= tail;
        h ^= h >> 16;
        h *= 0x85EBCA6Bu;
        h ^= h >> 13;
        h *= 0xC2B2AE35u;
        h ^= h >> 16;
        const S32 value = (S32)h;
        minimum[v] = value < minimum[v] ? value : minimum[v];
      }
    }
    for (int v = 0; v < kVectors; ++v) std::memcpy(least + static_cast<size_t>(v) * (kBytes / 4), &minimum[v], kBytes);
  }

  static void windows(const WindowHash* windows, size_t count, const uint32_t* seeds, uint32_t* least, size_t values) {
    for_blocks<kBytes / 4>(
        values, [&](auto vectors, size_t at) __attribute__((always_inline)) {
          windows_block<decltype(vectors)::value>(windows, count, seeds + at, least + at);
        });
  }

  template <int kVectors>
  static inline __attribute__((always_inline)) void shingles_block(const uint64_t* shingles, size_t count,
                                                                   const uint64_t* masks, uint64_t* least) {
    U64 mask[kVectors], minimum[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      load(mask[v], masks + static_cast<size_t>(v) * (kBytes / 8));
      load(minimum[v], least + static_cast<size_t>(v) * (kBytes / 8));
    }
    for (size_t shingle = 0; shingle < count; ++shingle) {
      for (int v = 0; v < kVectors; ++v) {
        U64 h = (mask[v] ^ shingles[shingle]) * kMinHashFirst;
        h ^= h >> 32;
        h *= kMinHashSecond;
        minimum[v] = h < minimum[v] ? h : minimum[v];
      }
    }
    for (int v = 0; v < kVectors; ++v) std::memcpy(least + static_cast<size_t>(v) * (kBytes / 8), &minimum[v], kBytes);
  }

  static void shingles(const uint64_t* shingles, size_t count, const uint64_t* masks, uint64_t* least, size_t values) {
    for_blocks<kBytes / 8>(
        values, [&](auto vectors, size_t at) __attribute__((always_inline)) {
          shingles_block<decltype(vectors)::value>(shingles, count, masks + at, least + at);
        });
  }
};

// In minhash_<instruction set>.cpp.
#define ESPALIER_MINHASH_LOOPS(ISA)                                                                           \
  void minhash_windows_##ISA(const WindowHash* windows, size_t count, const uint32_t* seeds, uint32_t* least, \
                             size_t values);                                                                  \
  void minhash_shingles_##ISA(const uint64_t* shingles, size_t count, const uint64_t* masks, uint64_t* least, \
                              size_t values)
ESPALIER_MINHASH_LOOPS(avx2);
ESPALIER_MINHASH_LOOPS(avx512);
#undef ESPALIER_MINHASH_LOOPS

}  // namespace espalier::curate::internal
