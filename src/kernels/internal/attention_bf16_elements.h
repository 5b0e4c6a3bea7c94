// Elements of bf16 on top of AVX-512, for the units with AVX512-BF16 and AMX. In an unnamed namespace: each has a copy.
#pragma once

#include "kernels/internal/attention_avx512_math.h"
#include "kernels/internal/attention_tiles.h"

namespace espalier::kernels {
namespace {

struct Bf16Elements : Avx512Math {
  using Element = uint16_t;
  static constexpr int kGroup = 2, kBlockRows = 8;

  static Float dot(Float sum, Int a, Int b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static Float load_elements(const uint16_t* p) { return load_bfloat16(p); }
  static void store_elements(uint16_t* p, Float x) {
    _mm256_storeu_si256((__m256i*)p, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
  }
  static void interleave_two(const uint16_t* first, const uint16_t* second, int64_t count, uint16_t* to) {
    const Int low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5,
                                     36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const Int high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (int64_t i = 0; i < count; i += 32) {
      const Int a = _mm512_loadu_si512(first + i), b = _mm512_loadu_si512(second + i);
      _mm512_storeu_si512(to + 2 * i, _mm512_permutex2var_epi16(a, low, b));
      _mm512_storeu_si512(to + 2 * i + 32, _mm512_permutex2var_epi16(a, high, b));
    }
  }
  // x in the low half, y in the high half.
  static Int round_two(Float x, Float y) { return reinterpret_cast<Int>(_mm512_cvtne2ps_pbh(y, x)); }
  static void store_two_rows(void* tile, int64_t key, int64_t lane, Float x, Float y) {
    const Int both = round_two(x, y);
    uint16_t* const row = static_cast<uint16_t*>(tile) + key * kTile + lane;
    _mm256_storeu_si256((__m256i*)row, _mm512_castsi512_si256(both));
    _mm256_storeu_si256((__m256i*)(row + kTile), _mm512_extracti64x4_epi64(both, 1));
  }
  static void store_interleaved(void* tile, int64_t key, int64_t lane, Float x, Float y) {
    const Int order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                       5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(static_cast<uint32_t*>(tile) + key / 2 * kTile + lane,
                        _mm512_permutexvar_epi16(order, round_two(x, y)));
  }
};

}  // namespace
}  // namespace espalier::kernels
