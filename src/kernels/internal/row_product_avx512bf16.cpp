// Products of rows of bf16 by the instruction for pairs of them: 32 inputs at a time.
#include <immintrin.h>

#include <cstdint>

#include "kernels/internal/bf16_avx512.h"
#include "kernels/internal/row_kernels.h"

namespace espalier::kernels::avx512bf16 {
namespace {

using avx512::narrow;
using avx512::widen;

constexpr int64_t kPairs = 32;
constexpr int kRowsOfTile = 4, kColumnsOfTile = 4, kRowsTogether = 2 * kRowsOfTile;
constexpr int64_t kInputsOfPart = 768;

__m512bh load(const uint16_t* from, __mmask32 lanes) {
  return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(lanes, from));
}

float sum(__m512 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The columns of the block after this one that a tile of several rows fetches into the second-level cache along with
// its work, since four streams at once are too much for the processor's own prefetching. All tiles of the first rows
// share them, so that memory is read all the time.
struct Fetch {
  int first_column, columns;
};
constexpr Fetch kNothing{0, 0};

// A row alone is multiplied with one column at a time: memory is read fastest in one stream.
template <Fetch kFetch, int kRows, int kColumns>
[[gnu::always_inline]] inline void add_products(const uint16_t* x, const uint16_t* weight, int64_t inputs,
                                                __mmask32 lanes, __m512 (&total)[kRows][kColumns]) {
  __m512bh left[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) left[r] = load(x + r * inputs, lanes);
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
    if (c >= kFetch.first_column && c < kFetch.first_column + kFetch.columns)
      _mm_prefetch(reinterpret_cast<const char*>(weight + (kProductBlock + c) * inputs), _MM_HINT_T1);
    const __m512bh right = load(weight + c * inputs, lanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) total[r][c] = _mm512_dpbf16_ps(total[r][c], left[r], right);
  }
}

// The same sums of a whole tile at once, row after row, with a third of the instructions.
[[gnu::always_inline]] inline __m512 sums_of(const __m512 (&total)[kRowsOfTile][kColumnsOfTile]) {
  __m512 quarter[kColumnsOfTile];  // of column c: a quarter for each row
  for (int c = 0; c < kColumnsOfTile; ++c) {
    __m512 half[2];
    for (int pair = 0; pair < 2; ++pair) {
      const __m512 a = total[2 * pair][c], b = total[2 * pair + 1][c];
      half[pair] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    }
    quarter[c] =
        _mm512_add_ps(_mm512_shuffle_f32x4(half[0], half[1], 0x88), _mm512_shuffle_f32x4(half[0], half[1], 0xDD));
  }
  __m512 two[2];
  for (int pair = 0; pair < 2; ++pair) {
    const __m512 a = quarter[2 * pair], b = quarter[2 * pair + 1];
    two[pair] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
  }
  return _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xDD));
}

template <Fetch kFetch, int kRows, int kColumns>
[[gnu::always_inline]] inline void product_tile(const ProductPart& part, const uint16_t* x, const uint16_t* weight,
                                                __m512 (*running)[kProductBlock], float (*sums)[kProductBlock],
                                                int64_t column) {
  __m512 total[kRows][kColumns];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) total[r][c] = part.first() ? _mm512_setzero_ps() : running[r][column + c];
  int64_t i = part.begin;
  for (; i + kPairs <= part.end; i += kPairs)
    add_products<kFetch>(x + i, weight + i, part.inputs, ~__mmask32{0}, total);
  if (i < part.end) add_products<kNothing>(x + i, weight + i, part.inputs, (__mmask32{1} << (part.end - i)) - 1, total);
  if (!part.last()) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) running[r][column + c] = total[r][c];
  } else if constexpr (kRows == kRowsOfTile && kColumns == kColumnsOfTile) {
    alignas(64) float all[kRows][kColumns];
    _mm512_store_ps(&all[0][0], sums_of(total));
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) _mm_storeu_ps(&sums[r][column], _mm_load_ps(all[r]));
  } else {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) sums[r][column + c] = sum(total[r][c]);
  }
}

// Several rows take the inputs in parts, so that the weights of one part stay in the first-level cache for all of them.
template <Fetch kFetch, int kRows>
inline void sum_products(const uint16_t* x, const uint16_t* weight, int64_t inputs, int64_t count,
                         float (*sums)[kProductBlock]) {
  if constexpr (kRows == 1) {
    for (int64_t column = 0; column < count; ++column)
      product_tile<kNothing, 1, 1>({0, inputs, inputs}, x, weight + column * inputs, nullptr, sums, column);
  } else {
    __m512 running[kRows][kProductBlock];
    const int64_t parts = (inputs + kInputsOfPart - 1) / kInputsOfPart;
    const int64_t length = (inputs + parts * kPairs - 1) / (parts * kPairs) * kPairs;
    for (int64_t begin = 0; begin < inputs; begin += length) {
      const ProductPart part{begin, begin + length < inputs ? begin + length : inputs, inputs};
      int64_t column = 0;
      for (; column + kColumnsOfTile <= count; column += kColumnsOfTile) {
        const uint16_t* const columns = weight + column * inputs;
        if constexpr (kFetch.columns == 0 || kRows == kRowsOfTile) {
          for (int row = 0; row < kRows; row += kRowsOfTile)
            product_tile<kFetch, kRowsOfTile, kColumnsOfTile>(part, x + row * inputs, columns, running + row,
                                                              sums + row, column);
        } else {
          constexpr int kHalf = kFetch.columns / 2;  // each row of tiles fetches its share
          product_tile<Fetch{kFetch.first_column, kHalf}, kRowsOfTile, kColumnsOfTile>(part, x, columns, running, sums,
                                                                                       column);
          product_tile<Fetch{kFetch.first_column + kHalf, kHalf}, kRowsOfTile, kColumnsOfTile>(
              part, x + kRowsOfTile * inputs, columns, running + kRowsOfTile, sums + kRowsOfTile, column);
        }
      }
      for (; column < count; ++column)
        for (int row = 0; row < kRows; row += kRowsOfTile)
          product_tile<kNothing, kRowsOfTile, 1>(part, x + row * inputs, weight + column * inputs, running + row,
                                                 sums + row, column);
    }
  }
}

template <Fetch kFetch, int kRows>
inline void product_rows(const RowProduct& args, int64_t token, int64_t output, int64_t count) {
  float sums[kRows][kProductBlock];
  const uint16_t* const x = static_cast<const uint16_t*>(args.x) + token * args.inputs;
  const uint16_t* const weight = static_cast<const uint16_t*>(args.weight) + output * args.inputs;
  sum_products<kFetch, kRows>(x, weight, args.inputs, count, sums);
  const __mmask16 lanes = static_cast<__mmask16>((1U << count) - 1);
  for (int64_t r = 0; r < kRows; ++r) {
    __m512 value = _mm512_maskz_loadu_ps(lanes, sums[r]);
    if (args.bias != nullptr)
      value = _mm512_add_ps(value,
                            widen(_mm256_maskz_loadu_epi16(lanes, static_cast<const uint16_t*>(args.bias) + output)));
    const int64_t place = (token + r) * args.outputs + output;
    if (args.fp32_result)
      _mm512_mask_storeu_ps(static_cast<float*>(args.y) + place, lanes, value);
    else
      _mm256_mask_storeu_epi16(static_cast<uint16_t*>(args.y) + place, lanes, narrow(value));
  }
}

}  // namespace

void row_product_bf16(const RowProduct& args, int64_t block) {
  const int64_t output = block * kProductBlock;
  const int64_t count = args.outputs - output < kProductBlock ? args.outputs - output : kProductBlock;
  constexpr Fetch kAll{0, kColumnsOfTile}, kFirstHalf{0, kColumnsOfTile / 2},
      kSecondHalf{kColumnsOfTile / 2, kColumnsOfTile / 2};
  int64_t token = 0;
  if (args.tokens >= 2 * kRowsTogether) {
    product_rows<kFirstHalf, kRowsTogether>(args, 0, output, count);
    product_rows<kSecondHalf, kRowsTogether>(args, kRowsTogether, output, count);
    token = 2 * kRowsTogether;
  } else if (args.tokens >= kRowsTogether) {
    product_rows<kAll, kRowsTogether>(args, 0, output, count);
    token = kRowsTogether;
  } else if (args.tokens >= kRowsOfTile) {
    product_rows<kAll, kRowsOfTile>(args, 0, output, count);
    token = kRowsOfTile;
  }
  for (; token + kRowsTogether <= args.tokens; token += kRowsTogether)
    product_rows<kNothing, kRowsTogether>(args, token, output, count);
  for (; token + kRowsOfTile <= args.tokens; token += kRowsOfTile)
    product_rows<kNothing, kRowsOfTile>(args, token, output, count);
  for (; token < args.tokens; ++token) product_rows<kNothing, 1>(args, token, output, count);
}

}  // namespace espalier::kernels::avx512bf16
