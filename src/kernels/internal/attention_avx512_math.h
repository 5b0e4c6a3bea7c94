// Vectors of AVX-512 for attention_tile_loops.h. In an unnamed namespace: each unit has a copy of its own.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/internal/transpose_avx512.h"

namespace espalier::kernels {
namespace {

struct Avx512Math {
  using Float = __m512;
  using Int = __m512i;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;

  static Float zero() { return _mm512_setzero_ps(); }
  static Float set(float x) { return _mm512_set1_ps(x); }
  static Float load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Float x) { _mm512_storeu_ps(p, x); }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }  // b where one is not a number
  static float sum(Float x) { return _mm512_reduce_add_ps(x); }
  static bool all_equal(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ) == 0xFFFF; }
  static Float round(Float x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // x 2^n where m, else 0.
  static Float scale_by_power(Mask m, Float x, Float n) { return _mm512_maskz_scalef_ps(m, x, n); }
  static Mask not_less(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }  // true for a NaN

  static Int int_set(uint32_t x) { return _mm512_set1_epi32(static_cast<int32_t>(x)); }
  static Int int_load(const void* p) { return _mm512_loadu_si512(p); }
  static void int_store(void* p, Int x) { _mm512_storeu_si512(p, x); }
  static Int lane_numbers() { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
  static Int int_add(Int a, Int b) { return _mm512_add_epi32(a, b); }
  // Of 64-bit lanes: the product of the low halves, the high half moved down, the low halves of both woven together.
  static Int multiply_low_halves(Int a, Int b) { return _mm512_mul_epu32(a, b); }
  static Int high_half(Int x) { return _mm512_srli_epi64(x, 32); }
  static Int join_low_halves(Int even, Int odd) {
    return _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
  }
  static Int xor3(Int a, Int b, Int c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }

  static Mask between(Int x, Int first, Int last) {
    return _mm512_cmple_epi32_mask(first, x) & _mm512_cmple_epi32_mask(x, last);
  }
  static Mask not_below(Int a, Int b) { return _mm512_cmpge_epu32_mask(a, b); }  // unsigned
  static Float select(Mask m, Float x, Float otherwise) { return _mm512_mask_blend_ps(m, otherwise, x); }

  static Float load_bfloat16(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
  }
  static Float load_half(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
  static void store_half(uint16_t* p, Float x) {
    _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  // To nearest even; not-a-number stays one.
  static void store_bfloat16(uint16_t* p, Float x) {
    const Int bits = _mm512_castps_si512(x);
    const Int odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const Int rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const Mask nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const Int kept = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7FC00000));
    _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
  }

  // A block of 16 x 16 words of 32 bits: to[column][row] = from[row][column].
  static void transpose_block(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
    Int words[16];
    for (int i = 0; i < 16; ++i) words[i] = _mm512_loadu_si512(from + i * from_stride);
    avx512::transpose_words(words);
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * to_stride, words[i]);
  }
};

}  // namespace
}  // namespace espalier::kernels
