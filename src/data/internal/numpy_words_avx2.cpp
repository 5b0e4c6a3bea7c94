#include <immintrin.h>

#include "data/internal/numpy_words_loops.h"

namespace espalier::data::internal {
namespace {

// For each set of lanes their numbers in order, a byte each.
struct LaneTable {
  uint64_t lanes[256];
  constexpr LaneTable() : lanes() {
    for (unsigned set = 0; set < 256; ++set)
      for (unsigned lane = 0, place = 0; lane < 8; ++lane)
        if ((set >> lane & 1) != 0) lanes[set] |= uint64_t{lane} << (8 * place++);
  }
};
constexpr LaneTable kLanes;

// 48 words at once, as in numpy_words_avx512.cpp.
struct Groups {
  static constexpr size_t kGroup = 48, kParts = kGroup / 8;

  static unsigned not_above(__m256i values, __m256i bound) {
    const __m256i found = _mm256_cmpeq_epi32(_mm256_min_epu32(values, bound), values);
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(found)));
  }

  static bool take_group(const uint32_t* words, uint32_t mask, uint32_t maximum, uint32_t* partners, size_t& taken) {
    const __m256i low_bits = _mm256_set1_epi32(static_cast<int>(mask));
    const __m256i possible = _mm256_set1_epi32(static_cast<int>(maximum));
    const __m256i sure = _mm256_set1_epi32(static_cast<int>(maximum - (kGroup - 1)));
    __m256i values[kParts];
    unsigned keep[kParts], doubtful = 0;
    for (size_t part = 0; part < kParts; ++part) {
      values[part] = _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + 8 * part)), low_bits);
      keep[part] = not_above(values[part], sure);
      doubtful |= keep[part] ^ not_above(values[part], possible);
    }
    if (doubtful != 0) [[unlikely]]
      return false;
    taken = 0;
    for (size_t part = 0; part < kParts; ++part) {
      const __m256i lanes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(kLanes.lanes[keep[part]])));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(partners + taken),
                          _mm256_permutevar8x32_epi32(values[part], lanes));
      taken += static_cast<size_t>(__builtin_popcount(keep[part]));
    }
    return true;
  }
};

}  // namespace

namespace avx2 {

void refill(NumpyWords& words) { next_block(words); }

void draw_partners(NumpyWords& words, uint32_t maximum, size_t count, uint32_t* partners) {
  draw_with<Groups>(words, maximum, count, partners);
}

}  // namespace avx2
}  // namespace espalier::data::internal
