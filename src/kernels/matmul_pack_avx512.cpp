// Rearranges bf16 operands into the panels of matmul_bf16.h.
#include <immintrin.h>

#include "kernels/internal/transpose_avx512.h"
#include "kernels/matmul_bf16.h"

namespace espalier::kernels {
namespace {

using avx512::transpose_words;

int64_t round_up_depth(int64_t depth) { return (depth + kDepthUnit - 1) / kDepthUnit * kDepthUnit; }

inline __mmask32 first_values(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : count <= 0 ? __mmask32{0} : (__mmask32{1} << count) - 1;
}

// Two rows of 32 values -> 32 pairs (first, second), in order: the low 16 in `left`, the high 16 in `right`.
inline void interleave(__m512i first, __m512i second, __m512i& left, __m512i& right) {
  alignas(64) static constexpr uint16_t kLeft[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i left_index = _mm512_load_si512(kLeft);
  const __m512i right_index = _mm512_add_epi16(left_index, _mm512_set1_epi16(16));
  left = _mm512_permutex2var_epi16(first, left_index, second);
  right = _mm512_permutex2var_epi16(first, right_index, second);
}

inline __m512i load_row(const PackSource& source, int64_t row, int64_t num_rows, int64_t first, __mmask32 lanes) {
  return row < num_rows ? _mm512_maskz_loadu_epi16(lanes, source.values + row * source.stride + first)
                        : _mm512_setzero_si512();
}

}  // namespace

void pack_b_transposed(const PackSource& source, int64_t columns, int64_t depth, uint16_t* block) {
  const __mmask32 lanes = first_values(depth);
  for (int64_t half = 0; half < 2; ++half) {
    __m512i rows[16];
    for (int64_t row = 0; row < 16; ++row) rows[row] = load_row(source, half * 16 + row, columns, 0, lanes);
    transpose_words(rows);
    for (int64_t pair = 0; pair < 16; ++pair)
      _mm512_store_si512(block + half * (kBlockElements / 2) + pair * 32, rows[pair]);
  }
}

void pack_b(const PackSource& source, int64_t columns, int64_t depth, uint16_t* block) {
  const __mmask32 lanes = first_values(columns);
  for (int64_t pair = 0; pair < 16; ++pair) {
    __m512i left, right;
    interleave(load_row(source, 2 * pair, depth, 0, lanes), load_row(source, 2 * pair + 1, depth, 0, lanes), left,
               right);
    _mm512_store_si512(block + pair * 32, left);
    _mm512_store_si512(block + kBlockElements / 2 + pair * 32, right);
  }
}

void pack_a_transposed(const PackSource& source, int64_t rows, int64_t depth, uint16_t* block) {
  const __mmask32 lanes = first_values(rows);
  __m512i left[16], right[16];
  for (int64_t pair = 0; pair < 16; ++pair) {
    interleave(load_row(source, 2 * pair, depth, 0, lanes), load_row(source, 2 * pair + 1, depth, 0, lanes), left[pair],
               right[pair]);
  }
  transpose_words(left);
  transpose_words(right);
  for (int64_t row = 0; row < 16; ++row) {
    _mm512_store_si512(block + row * kDepthUnit, left[row]);
    _mm512_store_si512(block + (16 + row) * kDepthUnit, right[row]);
  }
}

void pack_a(const PackSource& source, int64_t rows, int64_t depth, uint16_t* panel) {
  const int64_t stride = round_up_depth(depth);
  for (int64_t row = 0; row < kPanel; ++row) {
    for (int64_t at = 0; at < stride; at += kDepthUnit) {
      _mm512_store_si512(panel + row * stride + at, load_row(source, row, rows, at, first_values(depth - at)));
    }
  }
}

}  // namespace espalier::kernels
