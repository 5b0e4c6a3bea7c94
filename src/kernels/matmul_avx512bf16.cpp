// bf16 products on VDPBF16PS (AMD Zen 4 and later, Intel Cooper Lake): each group of up to 12 rows by 32 columns of C
// stays in 24 registers while the depth runs.
#include <immintrin.h>

#include "kernels/matmul_bf16.h"
#include "kernels/matmul_tile.h"

namespace espalier::kernels {
namespace avx512bf16 {
namespace {

// What the tile will be added to, or nullptr. It comes from memory while the tile is computed, a row for each step of
// the depth: all rows at once would hold up the panels.
struct Destination {
  const float* c = nullptr;
  int64_t stride = 0;
  void fetch_row(int64_t row) const {
    const char* const at = reinterpret_cast<const char*>(c + row * stride);
    _mm_prefetch(at, _MM_HINT_T1);
    _mm_prefetch(at + 64, _MM_HINT_T1);
  }
};

// Where an A block has the pairs of a row: rows lie apart, or pairs do as in a block of B, one line for sixteen rows.
struct InRows {
  int64_t stride;
  int64_t place(int row, int64_t pair) const { return row * stride + 2 * pair; }
};
struct InPairs {
  static constexpr int64_t place(int row, int64_t pair) {
    return row / 16 * (kBlockElements / 2) + pair * 32 + row % 16 * 2;
  }
};

// tile [kFirstRow .. kFirstRow + kRows, kPanel] = those rows of A * B panel.
template <int kFirstRow, int kRows, class Layout>
inline void multiply_rows(const PanelProduct& product, Layout layout, const uint16_t* b, Destination to, float* tile) {
  __m512 left[kRows], right[kRows];
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) left[row] = right[row] = _mm512_setzero_ps();
  const uint16_t* a = product.a;
  for (int64_t step = 0; step < product.depth / kDepthUnit; ++step, a += product.a_step, b += kBlockElements) {
    if (to.c != nullptr && step < kRows && kFirstRow + step < product.rows) to.fetch_row(kFirstRow + step);
    for (int64_t pair = 0; pair < kDepthUnit / 2; ++pair) {
      const __m512bh b_left = reinterpret_cast<__m512bh>(_mm512_load_si512(b + pair * 32));
      const __m512bh b_right = reinterpret_cast<__m512bh>(_mm512_load_si512(b + kBlockElements / 2 + pair * 32));
#pragma GCC unroll 12
      for (int row = 0; row < kRows; ++row) {
        int32_t values;
        __builtin_memcpy(&values, a + layout.place(kFirstRow + row, pair), sizeof values);
        const __m512bh a_pair = reinterpret_cast<__m512bh>(_mm512_set1_epi32(values));
        left[row] = _mm512_dpbf16_ps(left[row], a_pair, b_left);
        right[row] = _mm512_dpbf16_ps(right[row], a_pair, b_right);
      }
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
    _mm512_store_ps(tile + (kFirstRow + row) * kPanel, left[row]);
    _mm512_store_ps(tile + (kFirstRow + row) * kPanel + 16, right[row]);
  }
}

// Calls finish(tile, first column, columns) for each 32 x 32 tile of the product.
template <class Layout, class Finish>
inline void for_each_tile(const PanelProduct& product, Layout layout, Destination to, Finish finish) {
  alignas(64) float tile[kPanel * kPanel];
  for (int64_t column = 0; column < product.columns; column += kPanel) {
    const int64_t columns = product.columns - column < kPanel ? product.columns - column : kPanel;
    const uint16_t* b = product.b + column * product.depth;
    multiply_rows<0, 12>(product, layout, b, to, tile);
    if (product.rows > 12) multiply_rows<12, 12>(product, layout, b, to, tile);
    if (product.rows > 24) multiply_rows<24, 8>(product, layout, b, to, tile);
    finish(tile, column, columns);
    if (to.c != nullptr) to.c += kPanel;
  }
}

template <class Finish>
inline void for_each_tile(const PanelProduct& product, Finish finish) {
  for_each_tile(product, InRows{product.a_stride}, Destination{}, finish);
}

template <class Layout>
inline void add_to(const PanelProduct& product, Layout layout, float* c, int64_t c_stride) {
  for_each_tile(product, layout, Destination{c, c_stride}, [&](const float* tile, int64_t column, int64_t columns) {
    write_partial(tile, product.rows, columns, /*add=*/true, c + column, c_stride);
  });
}

void store(const PanelProduct& product, float* c, int64_t c_stride) {
  for_each_tile(product, [&](const float* tile, int64_t column, int64_t columns) {
    write_partial(tile, product.rows, columns, /*add=*/false, c + column, c_stride);
  });
}

void add(const PanelProduct& product, float* c, int64_t c_stride) {
  add_to(product, InRows{product.a_stride}, c, c_stride);
}

void add_packed(const PanelProduct& product, float* c, int64_t c_stride) { add_to(product, InPairs{}, c, c_stride); }

void store_packed(const PanelProduct& product, float* c, int64_t c_stride) {
  for_each_tile(product, InPairs{}, Destination{}, [&](const float* tile, int64_t column, int64_t columns) {
    write_past_caches(tile, product.rows, columns, c + column, c_stride);
  });
  _mm_sfence();
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

const Bf16Kernels kAvx512Bf16Kernels = {.has_tiles = false,
                                        .store = avx512bf16::store,
                                        .add = avx512bf16::add,
                                        .store_bf16 = avx512bf16::store_bf16,
                                        .store_sum_bf16 = avx512bf16::store_sum_bf16,
                                        .pack_transposed = pack_b,
                                        .store_packed = avx512bf16::store_packed,
                                        .add_packed = avx512bf16::add_packed};

}  // namespace espalier::kernels
