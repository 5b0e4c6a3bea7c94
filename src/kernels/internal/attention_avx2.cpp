// Attention's tile operations with AVX2 and FMA, elements fp32.
#include <immintrin.h>

#include "kernels/internal/attention_fp32_elements.h"
#include "kernels/internal/transpose_avx2.h"

namespace espalier::kernels {
namespace {

struct Avx2Float {
  using Float = __m256;
  using Int = __m256i;
  using Mask = __m256;  // all bits of a lane
  static constexpr int kLanes = 8, kBlockRows = 4;

  static Float zero() { return _mm256_setzero_ps(); }
  static Float set(float x) { return _mm256_set1_ps(x); }
  static Float load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Float x) { _mm256_storeu_ps(p, x); }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }  // b where one is not a number
  static float sum(Float x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  static bool all_equal(Float a, Float b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)) == 0xFF; }
  static Float round(Float x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // x 2^n where m, else 0; -126 <= n <= 127: 2^n from its exponent bits.
  static Float scale_by_power(Mask m, Float x, Float n) {
    const Int exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_and_ps(m, _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23))));
  }
  static Mask not_less(Float a, Float b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }  // true for a NaN

  static Int int_set(uint32_t x) { return _mm256_set1_epi32(static_cast<int32_t>(x)); }
  static Int int_load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static Int lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
  static Int int_add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  // Of 64-bit lanes: the product of the low halves, the high half moved down, the low halves of both woven together.
  static Int multiply_low_halves(Int a, Int b) { return _mm256_mul_epu32(a, b); }
  static Int high_half(Int x) { return _mm256_srli_epi64(x, 32); }
  static Int join_low_halves(Int even, Int odd) { return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA); }
  static Int xor3(Int a, Int b, Int c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }

  static Mask between(Int x, Int first, Int last) {
    const Int outside = _mm256_or_si256(_mm256_cmpgt_epi32(first, x), _mm256_cmpgt_epi32(x, last));
    return _mm256_castsi256_ps(_mm256_xor_si256(outside, _mm256_set1_epi32(-1)));
  }
  static Mask not_below(Int a, Int b) { return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a)); }
  static Float select(Mask m, Float x, Float otherwise) { return _mm256_blendv_ps(otherwise, x, m); }

  static Float load_bfloat16(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
  }
  static Float load_half(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
  static void store_half(uint16_t* p, Float x) {
    _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  // To nearest even; not-a-number stays one.
  static void store_bfloat16(uint16_t* p, Float x) {
    const Int bits = _mm256_castps_si256(x);
    const Int odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const Int rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const Float nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const Int kept = _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)), nan));
    const Int words = _mm256_srli_epi32(kept, 16);
    _mm_storeu_si128((__m128i*)p, _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }

  // A block of 8 x 8 words of 32 bits: to[column][row] = from[row][column].
  static void transpose_block(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
    Float words[8];
    for (int i = 0; i < 8; ++i) words[i] = _mm256_castsi256_ps(int_load(from + i * from_stride));
    avx2::transpose_eight(words);
    for (int i = 0; i < 8; ++i) _mm256_storeu_si256((__m256i*)(to + i * to_stride), _mm256_castps_si256(words[i]));
  }

  static Float dot(Float sum, Int a, Int b) {
    return _mm256_fmadd_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), sum);
  }
};

}  // namespace

const TileOps kAvx2TileOps = tile_loops::make_table<Fp32Elements<Avx2Float>>();

}  // namespace espalier::kernels
