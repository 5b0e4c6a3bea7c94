#include <immintrin.h>

#include "data/internal/numpy_words_loops.h"

namespace espalier::data::internal {
namespace {

// 48 words at once, a thirteenth of a block. How many of them were taken before a word is not known yet, but that
// lowers the word's maximum by 47 at most: where no value lies between, the order does not matter.
struct Groups {
  static constexpr size_t kGroup = 48, kParts = kGroup / 16;

  static bool take_group(const uint32_t* words, uint32_t mask, uint32_t maximum, uint32_t* partners, size_t& taken) {
    const __m512i low_bits = _mm512_set1_epi32(static_cast<int>(mask));
    const __m512i possible = _mm512_set1_epi32(static_cast<int>(maximum));
    const __m512i sure = _mm512_set1_epi32(static_cast<int>(maximum - (kGroup - 1)));
    __m512i values[kParts];
    __mmask16 keep[kParts];
    unsigned doubtful = 0;
    for (size_t part = 0; part < kParts; ++part) {
      values[part] = _mm512_and_si512(_mm512_loadu_si512(words + 16 * part), low_bits);
      keep[part] = _mm512_cmple_epu32_mask(values[part], sure);
      doubtful |= keep[part] ^ _mm512_cmple_epu32_mask(values[part], possible);
    }
    if (doubtful != 0) [[unlikely]]
      return false;
    // Whole vectors are stored; the next one covers what was not taken. The room is there: kGroup are still wanted.
    taken = 0;
    for (size_t part = 0; part < kParts; ++part) {
      _mm512_storeu_si512(partners + taken, _mm512_maskz_compress_epi32(keep[part], values[part]));
      taken += static_cast<size_t>(__builtin_popcount(keep[part]));
    }
    return true;
  }
};

}  // namespace

namespace avx512 {

void refill(NumpyWords& words) { next_block(words); }

void draw_partners(NumpyWords& words, uint32_t maximum, size_t count, uint32_t* partners) {
  draw_with<Groups>(words, maximum, count, partners);
}

}  // namespace avx512
}  // namespace espalier::data::internal
