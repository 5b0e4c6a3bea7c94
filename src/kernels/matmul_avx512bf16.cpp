// bf16 products on VDPBF16PS (AMD Zen 4 and later, Intel Cooper Lake): each group of up to 12 rows by 32 columns of C
// stays in 24 registers while the depth runs.
#include <immintrin.h>

#include "kernels/matmul_bf16.h"
#include "kernels/matmul_tile.h"

namespace espalier::kernels {
namespace avx512bf16 {
namespace {

// tile [kRows, kPanel] = A rows * B panel.
template <int kRows>
inline void multiply_rows(const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t depth, float* tile) {
  __m512 left[kRows], right[kRows];
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) left[row] = right[row] = _mm512_setzero_ps();
  for (int64_t at = 0; at < depth; at += 2) {
    const uint16_t* pairs = b + at / kDepthUnit * kDepthUnit * kPanel + at % kDepthUnit * 16;
    const __m512bh b_left = reinterpret_cast<__m512bh>(_mm512_load_si512(pairs));
    const __m512bh b_right = reinterpret_cast<__m512bh>(_mm512_load_si512(pairs + kDepthUnit * 16));
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
      int32_t pair;
      __builtin_memcpy(&pair, a + row * a_stride + at, sizeof pair);
      const __m512bh a_pair = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      left[row] = _mm512_dpbf16_ps(left[row], a_pair, b_left);
      right[row] = _mm512_dpbf16_ps(right[row], a_pair, b_right);
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
    _mm512_store_ps(tile + row * kPanel, left[row]);
    _mm512_store_ps(tile + row * kPanel + 16, right[row]);
  }
}

// Calls finish(tile, first column, columns) for each 32 x 32 tile of the product.
template <class Finish>
inline void for_each_tile(const PanelProduct& product, Finish finish) {
  alignas(64) float tile[kPanel * kPanel];
  for (int64_t column = 0; column < product.columns; column += kPanel) {
    const int64_t columns = product.columns - column < kPanel ? product.columns - column : kPanel;
    const uint16_t* b = product.b + column * product.depth;
    const int64_t stride = product.a_stride;
    if (product.rows <= 1) {
      multiply_rows<1>(product.a, stride, b, product.depth, tile);
    } else {
      multiply_rows<12>(product.a, stride, b, product.depth, tile);
      if (product.rows > 12) multiply_rows<12>(product.a + 12 * stride, stride, b, product.depth, tile + 12 * kPanel);
      if (product.rows > 24) multiply_rows<8>(product.a + 24 * stride, stride, b, product.depth, tile + 24 * kPanel);
    }
    finish(tile, column, columns);
  }
}

void store(const PanelProduct& product, float* c, int64_t c_stride) {
  for_each_tile(product, [&](const float* tile, int64_t column, int64_t columns) {
    write_partial(tile, product.rows, columns, /*add=*/false, c + column, c_stride);
  });
}

void add(const PanelProduct& product, float* c, int64_t c_stride) {
  for_each_tile(product, [&](const float* tile, int64_t column, int64_t columns) {
    write_partial(tile, product.rows, columns, /*add=*/true, c + column, c_stride);
  });
}

void store_bf16(const PanelProduct& product, const uint16_t* bias, uint16_t* y, int64_t y_stride) {
  for_each_tile(product, [&](const float* tile, int64_t column, int64_t columns) {
    write_bf16(tile, product.rows, columns, bias == nullptr ? nullptr : bias + column, y + column, y_stride);
  });
}

}  // namespace
}  // namespace avx512bf16

const Bf16Kernels kAvx512Bf16Kernels = {avx512bf16::store, avx512bf16::add, avx512bf16::store_bf16};

}  // namespace espalier::kernels
