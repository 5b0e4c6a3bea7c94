// Eight registers of eight 32-bit words, transposed. Internal linkage: each unit compiles its own copy for its own
// instruction set.
#pragma once

#include <immintrin.h>

namespace espalier::kernels::avx2 {
namespace {

// Afterwards lane i of rows[j] is what lane j of rows[i] was.
inline void transpose_eight(__m256 (&rows)[8]) {
  __m256 pairs[8], quads[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
    quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
  }
  // quads[4g + j]: lane j of rows 4g..4g+3, then lane 4 + j of them.
  for (int j = 0; j < 4; ++j) {
    rows[j] = _mm256_permute2f128_ps(quads[j], quads[4 + j], 0x20);
    rows[4 + j] = _mm256_permute2f128_ps(quads[j], quads[4 + j], 0x31);
  }
}

}  // namespace
}  // namespace espalier::kernels::avx2
