// bf16 products on VDPBF16PS (AMD Zen 4 and later, Intel Cooper Lake): each group of up to 12 rows by 32 columns of C
// stays in 24 registers while the depth runs.
#include <immintrin.h>

#include "kernels/matmul_bf16.h"
#include "kernels/matmul_tile.h"

namespace espalier::kernels {
namespace avx512bf16 {
namespace {

// tile [first_row .. first_row + kRows, kPanel] = those rows of A * B panel.
template <int kRows>
inline void multiply_rows(const PanelProduct& product, int64_t first_row, const uint16_t* b, float* tile) {
  __m512 left[kRows], right[kRows];
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) left[row] = right[row] = _mm512_setzero_ps();
  const int64_t stride = product.a_stride;
  const uint16_t* a = product.a + first_row * stride;
  for (int64_t step = 0; step < product.depth / kDepthUnit; ++step, a += product.a_step, b += kBlockElements) {
    for (int64_t pair = 0; pair < kDepthUnit / 2; ++pair) {
      const __m512bh b_left = reinterpret_cast<__m512bh>(_mm512_load_si512(b + pair * 32));
      const __m512bh b_right = reinterpret_cast<__m512bh>(_mm512_load_si512(b + kBlockElements / 2 + pair * 32));
#pragma GCC unroll 12
      for (int row = 0; row < kRows; ++row) {
        int32_t values;
        __builtin_memcpy(&values, a + row * stride + 2 * pair, sizeof values);
        const __m512bh a_pair = reinterpret_cast<__m512bh>(_mm512_set1_epi32(values));
        left[row] = _mm512_dpbf16_ps(left[row], a_pair, b_left);
        right[row] = _mm512_dpbf16_ps(right[row], a_pair, b_right);
      }
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
    _mm512_store_ps(tile + (first_row + row) * kPanel, left[row]);
    _mm512_store_ps(tile + (first_row + row) * kPanel + 16, right[row]);
  }
}

// Calls finish(tile, first column, columns) for each 32 x 32 tile of the product.
template <class Finish>
inline void for_each_tile(const PanelProduct& product, Finish finish) {
  alignas(64) float tile[kPanel * kPanel];
  for (int64_t column = 0; column < product.columns; column += kPanel) {
    const int64_t columns = product.columns - column < kPanel ? product.columns - column : kPanel;
    const uint16_t* b = product.b + column * product.depth;
    multiply_rows<12>(product, 0, b, tile);
    if (product.rows > 12) multiply_rows<12>(product, 12, b, tile);
    if (product.rows > 24) multiply_rows<8>(product, 24, b, tile);
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

void store_sum_bf16(const PanelProduct& product, const Addend& plus, uint16_t* y, int64_t y_stride) {
  for_each_tile(product, [&](const float* tile, int64_t column, int64_t columns) {
    const Addend here{plus.by_product, plus.by_addend, plus.values + column, plus.stride};
    write_sum_bf16(tile, product.rows, columns, here, y + column, y_stride);
  });
}

}  // namespace
}  // namespace avx512bf16

const Bf16Kernels kAvx512Bf16Kernels = {avx512bf16::store, avx512bf16::add, avx512bf16::store_bf16,
                                        avx512bf16::store_sum_bf16};

}  // namespace espalier::kernels
