// Sixteen floats in two AVX2 registers. The same operations, with the same bits, as vector_generic.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/transpose_avx2.h"

namespace espalier::kernels::avx2 {

struct Floats {
  static constexpr int64_t kWidth = 16;
  // Rows of two matrices whose products fit into the registers at once.
  static constexpr int kTileRows = 2, kTileColumns = 2;
  // Of panels (wide_panels.h): rows, and vectors of a row.
  static constexpr int kPanelRows = 6, kPanelVectors = 1;
  static constexpr int kPageVectors = 1;  // that four queries are multiplied with at once (paged_attention_rows.h)
  __m256 low, high;

  static Floats all(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  static Floats load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static Floats load(const Bf16* from) { return {widen(from), widen(from + 8)}; }
  static Floats load(const Fp16* from) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8)))};
  }
  static Floats load(const int8_t* from) { return {widen(from), widen(from + 8)}; }
  void store(float* to) const {
    _mm256_storeu_ps(to, low);
    _mm256_storeu_ps(to + 8, high);
  }
  void store(Bf16* to) const {
    // packus works within 128-bit halves; the permutation puts the four quarters in order.
    const __m256i packed = _mm256_packus_epi32(narrow(low), narrow(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
  }
  void store(Fp16* to) const {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(low, kNearest));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), _mm256_cvtps_ph(high, kNearest));
  }

  // This vector where words[lane] >= threshold, else zero.
  Floats keep(const uint32_t* words, uint32_t threshold) const {
    return {_mm256_and_ps(low, kept(words, threshold)), _mm256_and_ps(high, kept(words + 8, threshold))};
  }

 private:
  static __m256 widen(const int8_t* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }
  static __m256 widen(const Bf16* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  // The upper halves, rounded to nearest even, as 32-bit integers.
  static __m256i narrow(__m256 value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7FC0), nan);
  }
  // word >= threshold without sign: max(word, threshold) == word.
  static __m256 kept(const uint32_t* words, uint32_t threshold) {
    const __m256i word = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    const __m256i limit = _mm256_set1_epi32(static_cast<int>(threshold));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(word, limit), word));
  }
};

inline Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Floats fma(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Floats sqrt(Floats a) { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
// a > b ? a : b and a < b ? a : b, so b when either is NaN.
inline Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Floats min(Floats a, Floats b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Floats abs(Floats a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
inline Floats negative_abs(Floats a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(sign, a.low), _mm256_or_ps(sign, a.high)};
}
inline Floats select_positive(Floats x, Floats yes, Floats no) {
  const __m256 zero = _mm256_setzero_ps();
  return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(x.low, zero, _CMP_GT_OQ)),
          _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(x.high, zero, _CMP_GT_OQ))};
}
inline bool any_positive(Floats a) {
  const __m256 zero = _mm256_setzero_ps();
  const __m256 low = _mm256_cmp_ps(a.low, zero, _CMP_GT_OQ), high = _mm256_cmp_ps(a.high, zero, _CMP_GT_OQ);
  return _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0;
}
// Lanes 2i and 2i + 1 exchanged.
inline Floats swap_pairs(Floats a) { return {_mm256_permute_ps(a.low, 0xB1), _mm256_permute_ps(a.high, 0xB1)}; }
// The low nine bits of each lane moved to where a float has its sign and exponent.
inline Floats low_bits_to_exponent(Floats a) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.low), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.high), 23))};
}
inline float first_lane(Floats a) { return _mm256_cvtss_f32(a.low); }
// Halves are added until one lane is left.
inline float sum(Floats a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Afterwards lane i of rows[j] is what lane j of rows[i] was.
inline void transpose(Floats (&rows)[16]) {
  __m256 quarters[4][8];  // upper left, upper right, lower left, lower right
  for (int i = 0; i < 8; ++i) {
    quarters[0][i] = rows[i].low;
    quarters[1][i] = rows[i].high;
    quarters[2][i] = rows[8 + i].low;
    quarters[3][i] = rows[8 + i].high;
  }
  for (auto& quarter : quarters) transpose_eight(quarter);
  for (int i = 0; i < 8; ++i) {
    rows[i] = {quarters[0][i], quarters[2][i]};
    rows[8 + i] = {quarters[1][i], quarters[3][i]};
  }
}

// Four counters in the low halves of 64-bit lanes; only the low halves matter, so products need no clean-up.
struct PhiloxFour {
  __m256i x0, x1, x2, x3;

  void round(__m256i key0, __m256i key1) {
    const __m256i product0 = _mm256_mul_epu32(x0, _mm256_set1_epi64x(0xD2511F53));
    const __m256i product1 = _mm256_mul_epu32(x2, _mm256_set1_epi64x(0xCD9E8D57));
    x0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), x1), key0);
    x2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), x3), key1);
    x1 = product1;
    x3 = product0;
  }
  // Lanes hold the counters 0 2 1 3, which puts the words in order here.
  void store(uint32_t* words) const {
    const __m256i x01 = _mm256_blend_epi32(x0, _mm256_slli_epi64(x1, 32), 0xAA);
    const __m256i x23 = _mm256_blend_epi32(x2, _mm256_slli_epi64(x3, 32), 0xAA);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), _mm256_unpacklo_epi64(x01, x23));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 8), _mm256_unpackhi_epi64(x01, x23));
  }
};

inline void philox_words(Floats, const PhiloxRoundKeys& keys, uint32_t first, uint32_t word1, uint32_t word2,
                         uint32_t word3, uint32_t* words) {
  const __m256i lane = _mm256_setr_epi64x(0, 2, 1, 3);
  const __m256i x1 = _mm256_set1_epi64x(word1), x2 = _mm256_set1_epi64x(word2), x3 = _mm256_set1_epi64x(word3);
  for (int pair = 0; pair < 2; ++pair) {
    const int64_t counter = int64_t{first} + 8 * pair;
    PhiloxFour low{_mm256_add_epi64(lane, _mm256_set1_epi64x(counter)), x1, x2, x3};
    PhiloxFour high{_mm256_add_epi64(lane, _mm256_set1_epi64x(counter + 4)), x1, x2, x3};
    for (int i = 0; i < 10; ++i) {
      const __m256i key0 = _mm256_set1_epi64x(keys.first[i]), key1 = _mm256_set1_epi64x(keys.second[i]);
      low.round(key0, key1);
      high.round(key0, key1);
    }
    low.store(words + 32 * pair);
    high.store(words + 32 * pair + 16);
  }
}

}  // namespace espalier::kernels::avx2
