// Sixteen floats in one AVX-512 register. The same operations, with the same bits, as vector_generic.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/transpose_avx512.h"

namespace espalier::kernels::avx512 {

struct Floats {
  static constexpr int64_t kWidth = 16;
  // Rows of two matrices whose products fit into the registers at once.
  static constexpr int kTileRows = 4, kTileColumns = 4;
  // Of panels (wide_panels.h): rows, and vectors of a row.
  static constexpr int kPanelRows = 12, kPanelVectors = 2;
  static constexpr int kPageVectors = 4;  // that four queries are multiplied with at once (paged_attention_rows.h)
  __m512 v;

  static Floats all(float value) { return {_mm512_set1_ps(value)}; }
  static Floats load(const float* from) { return {_mm512_loadu_ps(from)}; }
  static Floats load(const Bf16* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  static Floats load(const Fp16* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  }
  static Floats load(const int8_t* from) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))};
  }
  void store(float* to) const { _mm512_storeu_ps(to, v); }
  // To nearest even, by integers: the instruction of AVX512-BF16 would flush denormal numbers to zero.
  void store(Bf16* to) const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i out = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7FC0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(out));
  }
  void store(Fp16* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  // This vector where words[lane] >= threshold, else zero.
  Floats keep(const uint32_t* words, uint32_t threshold) const {
    const __mmask16 kept =
        _mm512_cmpge_epu32_mask(_mm512_loadu_si512(words), _mm512_set1_epi32(static_cast<int>(threshold)));
    return {_mm512_maskz_mov_ps(kept, v)};
  }
};

inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Floats sqrt(Floats a) { return {_mm512_sqrt_ps(a.v)}; }
// a > b ? a : b and a < b ? a : b, so b when either is NaN.
inline Floats max(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Floats min(Floats a, Floats b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Floats abs(Floats a) { return {_mm512_abs_ps(a.v)}; }
inline Floats negative_abs(Floats a) { return {_mm512_or_ps(a.v, _mm512_set1_ps(-0.0f))}; }
inline Floats select_positive(Floats x, Floats yes, Floats no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, _mm512_setzero_ps(), _CMP_GT_OQ), no.v, yes.v)};
}
inline bool any_positive(Floats a) { return _mm512_cmp_ps_mask(a.v, _mm512_setzero_ps(), _CMP_GT_OQ) != 0; }
// Lanes 2i and 2i + 1 exchanged.
inline Floats swap_pairs(Floats a) { return {_mm512_permute_ps(a.v, 0xB1)}; }
// The low nine bits of each lane moved to where a float has its sign and exponent.
inline Floats low_bits_to_exponent(Floats a) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a.v), 23))};
}
inline float first_lane(Floats a) { return _mm512_cvtss_f32(a.v); }
// Halves are added until one lane is left.
inline float sum(Floats a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Afterwards lane i of rows[j] is what lane j of rows[i] was.
inline void transpose(Floats (&rows)[16]) {
  __m512i words[16];
  for (int i = 0; i < 16; ++i) words[i] = _mm512_castps_si512(rows[i].v);
  transpose_words(words);
  for (int i = 0; i < 16; ++i) rows[i].v = _mm512_castsi512_ps(words[i]);
}

// Eight counters in the low halves of 64-bit lanes; only the low halves matter, so products need no clean-up.
struct PhiloxEight {
  __m512i x0, x1, x2, x3;

  void round(__m512i key0, __m512i key1) {
    const __m512i product0 = _mm512_mul_epu32(x0, _mm512_set1_epi64(0xD2511F53));
    const __m512i product1 = _mm512_mul_epu32(x2, _mm512_set1_epi64(0xCD9E8D57));
    constexpr int kXorOfThree = 0x96;
    x0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), x1, key0, kXorOfThree);
    x2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), x3, key1, kXorOfThree);
    x1 = product1;
    x3 = product0;
  }
  // Lanes hold the counters 0 4 1 5 2 6 3 7, which puts the words in order here.
  void store(uint32_t* words) const {
    const __m512i x01 = _mm512_mask_blend_epi32(0xAAAA, x0, _mm512_slli_epi64(x1, 32));
    const __m512i x23 = _mm512_mask_blend_epi32(0xAAAA, x2, _mm512_slli_epi64(x3, 32));
    _mm512_storeu_si512(words, _mm512_unpacklo_epi64(x01, x23));
    _mm512_storeu_si512(words + 16, _mm512_unpackhi_epi64(x01, x23));
  }
};

inline void philox_words(Floats, const PhiloxRoundKeys& keys, uint32_t first, uint32_t word1, uint32_t word2,
                         uint32_t word3, uint32_t* words) {
  const __m512i lane = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  const __m512i x1 = _mm512_set1_epi64(word1), x2 = _mm512_set1_epi64(word2), x3 = _mm512_set1_epi64(word3);
  PhiloxEight low{_mm512_add_epi64(lane, _mm512_set1_epi64(first)), x1, x2, x3};
  PhiloxEight high{_mm512_add_epi64(lane, _mm512_set1_epi64(int64_t{first} + 8)), x1, x2, x3};
  for (int i = 0; i < 10; ++i) {
    const __m512i key0 = _mm512_set1_epi64(keys.first[i]), key1 = _mm512_set1_epi64(keys.second[i]);
    low.round(key0, key1);
    high.round(key0, key1);
  }
  low.store(words);
  high.store(words + 32);
}

}  // namespace espalier::kernels::avx512
