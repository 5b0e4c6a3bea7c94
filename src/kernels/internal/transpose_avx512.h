// Sixteen registers of sixteen 32-bit words, transposed. Internal linkage: each unit compiles its own copy for its own
// instruction set.
#pragma once

#include <immintrin.h>

namespace espalier::kernels::avx512 {
namespace {

// rows[r] holds 16 words of row r; afterwards rows[c] holds word c of all 16 rows.
inline void transpose_words(__m512i (&rows)[16]) {
  __m512i pairs[16], quads[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    quads[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    quads[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    quads[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    quads[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  // quads[4g + j]: in lane l, word 4l + j of rows 4g..4g+3.
  for (int j = 0; j < 4; ++j) {
    const __m512i low01 = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0x88);   // lanes 0, 2 of groups 0 and 1
    const __m512i high01 = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0xDD);  // lanes 1, 3
    const __m512i low23 = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0x88);
    const __m512i high23 = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0xDD);
    rows[j] = _mm512_shuffle_i32x4(low01, low23, 0x88);         // lane 0 of every group
    rows[4 + j] = _mm512_shuffle_i32x4(high01, high23, 0x88);   // lane 1
    rows[8 + j] = _mm512_shuffle_i32x4(low01, low23, 0xDD);     // lane 2
    rows[12 + j] = _mm512_shuffle_i32x4(high01, high23, 0xDD);  // lane 3
  }
}

}  // namespace
}  // namespace espalier::kernels::avx512
