// Products in fp32 by panels, in vectors V: what kernels/wide_product.h and row_product_panels.h are made of. A tile of
// C stays in registers while the depth runs: each value of A is read from its panel for all lanes, each vector of B
// once for all rows.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"

namespace espalier::kernels {

template <class V, class T>
void pack_along(const PanelSource& source, float* panel) {
  const T* row = static_cast<const T*>(source.values);
  for (int64_t at = 0; at < source.depth; ++at, row += source.stride, panel += kWidePanel) {
    if (source.count == kWidePanel) {
      V::load(row).store(panel);
      V::load(row + V::kWidth).store(panel + V::kWidth);
      continue;
    }
    set_zero<V>(panel, kWidePanel);
    for_each_vector<V>(source.count, [&](int64_t i, auto lanes) { lanes.store(panel + i, lanes.load(row + i)); });
  }
}

// place(i): where the panel has element i of the depth. What padding adds to the depth is zero.
template <class V, class T, class Place>
inline void transpose_into(const PanelSource& source, int64_t padded_depth, float* panel, const Place& place) {
  static_assert(V::kWidth == 16 && kWidePanel == 2 * V::kWidth);
  for_each_vector<V>(source.depth, [&](int64_t at, auto lanes) {
    const int64_t depths = padded_depth - at < V::kWidth ? padded_depth - at : V::kWidth;
    for (int64_t first = 0; first < kWidePanel; first += V::kWidth) {
      V rows[16];
      for (int64_t i = 0; i < 16; ++i)
        rows[i] = first + i < source.count
                      ? lanes.load(static_cast<const T*>(source.values) + (first + i) * source.stride + at)
                      : V::all(0);
      transpose(rows);
      for (int64_t i = 0; i < depths; ++i) rows[i].store(panel + place(at + i) * kWidePanel + first);
    }
  });
}

template <class V, class T>
void pack_across(const PanelSource& source, float* panel) {
  transpose_into<V, T>(source, source.depth, panel, [](int64_t i) { return i; });
}

template <class V, class T>
void pack_lanes(const PanelSource& source, float* panel) {
  constexpr int64_t kLanes = PanelRowProduct::kLanes;
  const int64_t padded = PanelRowProduct::padded_inputs(source.depth), of_lane = padded / kLanes;
  transpose_into<V, T>(source, padded, panel, [=](int64_t i) { return i % kLanes * of_lane + i / kLanes; });
}

// c = product's rows and columns from the given ones on + addend, kRows x kPanelVectors vectors of them.
template <class V, int kRows>
inline void panel_tile(const PanelProduct32& product, int64_t first_row, int64_t first_column) {
  constexpr int kVectors = V::kPanelVectors;
  float* const c = product.c + first_row * product.c_stride + first_column;
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int i = 0; i < kVectors; ++i) {
      sum[row][i] = V::all(0);
      // Rows of C are far apart. Into the second level: at a distance of a power of two they would drive each other and
      // the panels out of the first, worth a tenth of such a product.
      __builtin_prefetch(c + row * product.c_stride + i * V::kWidth, /*for writing=*/0, /*level 2*/ 2);
    }
  }
  const float* a = product.a + first_row;
  const float* b = product.b + first_column;
  for (int64_t at = 0; at < product.depth; ++at, a += kWidePanel, b += kWidePanel) {
    V right[kVectors];
#pragma GCC unroll 2
    for (int i = 0; i < kVectors; ++i) right[i] = V::load(b + i * V::kWidth);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const V left = V::all(a[row]);
#pragma GCC unroll 2
      for (int i = 0; i < kVectors; ++i) sum[row][i] = fma(left, right[i], sum[row][i]);
    }
  }
  const float* addend = product.addend;
  if (addend != nullptr) addend += first_row * product.addend_stride + first_column;
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int i = 0; i < kVectors; ++i) {
      const int64_t column = i * V::kWidth;
      V value = sum[row][i];
      if (addend != nullptr) value = value + V::load(addend + row * product.addend_stride + column);
      value.store(c + row * product.c_stride + column);
    }
  }
}

// Tiles of as equal heights as can be, down to the last row of a panel or beyond the last of C.
template <class V, int kFirstRow = 0>
inline void panel_tiles(const PanelProduct32& product, int64_t first_column) {
  if constexpr (kFirstRow < kWidePanel) {
    if (kFirstRow >= product.rows) return;
    constexpr int kLeft = kWidePanel - kFirstRow, kTiles = (kLeft + V::kPanelRows - 1) / V::kPanelRows;
    constexpr int kRows = (kLeft + kTiles - 1) / kTiles;
    panel_tile<V, kRows>(product, kFirstRow, first_column);
    panel_tiles<V, kFirstRow + kRows>(product, first_column);
  }
}

// c = a b + addend, whole columns and the rows of whole tiles.
template <class V>
inline void multiply_whole_panels(const PanelProduct32& product) {
  constexpr int64_t kColumns = V::kPanelVectors * V::kWidth;
  for (int64_t column = 0; column < product.columns; column += kColumns) panel_tiles<V>(product, column);
}

template <class V>
void multiply_panels(const PanelProduct32& product) {
  if (product.rows == kWidePanel && product.columns == kWidePanel) return multiply_whole_panels<V>(product);
  float whole[kWidePanel * kWidePanel];
  PanelProduct32 padded = product;
  padded.addend = nullptr;
  padded.c = whole;
  padded.c_stride = kWidePanel;
  multiply_whole_panels<V>(padded);
  for (int64_t row = 0; row < product.rows; ++row) {
    for_each_vector<V>(product.columns, [&](int64_t column, auto lanes) {
      V value = lanes.load(whole + row * kWidePanel + column);
      if (product.addend != nullptr) value = value + lanes.load(product.addend + row * product.addend_stride + column);
      lanes.store(product.c + row * product.c_stride + column, value);
    });
  }
}

}  // namespace espalier::kernels
