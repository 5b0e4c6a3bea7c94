// The inner loops of minhash.h, written once over vectors of kBytes bytes; included by one file for each instruction
// set, each of which takes a size of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace espalier::curate::internal {

// A window of five bytes, as far as its hash depends on no seed (MurmurHash3's body and tail).
struct WindowHash {
  uint32_t body, tail;
};

constexpr size_t kMinHashPadding = 16;  // values are filled up to a multiple of this: one vector of AVX-512

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
    constexpr size_t kLanes = kBytes / 4;
    size_t at = 0;
    for (; at + 4 * kLanes <= values; at += 4 * kLanes) windows_block<4>(windows, count, seeds + at, least + at);
    for (; at < values; at += kLanes) windows_block<1>(windows, count, seeds + at, least + at);
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
    constexpr size_t kLanes = kBytes / 8;
    size_t at = 0;
    for (; at + 4 * kLanes <= values; at += 4 * kLanes) shingles_block<4>(shingles, count, masks + at, least + at);
    for (; at < values; at += kLanes) shingles_block<1>(shingles, count, masks + at, least + at);
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
