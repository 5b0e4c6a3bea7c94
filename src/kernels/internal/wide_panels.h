// Products in fp32 by panels, in vectors V: what kernels/wide_product.h and row_product_panels.h are made of. A tile of
// C stays in registers while the depth runs: each value of A is read from its panel for all lanes, each vector of B
// once for all rows.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"

namespace espalier::kernels {

template <class V>
inline constexpr int64_t kPanelRows = V::kPanelRows;
template <class V>
inline constexpr int64_t kPanelColumns = V::kPanelVectors* V::kWidth;

// At most kChunk elements of one row of the source, of which a panel has kWidth.
template <class V, int64_t kWidth>
inline constexpr int64_t kPackedChunk = kWidth % V::kWidth == 0 ? kWidth : 8 * kWidth;
template <class V, class T, int64_t kWidth>
inline void pack_chunk(const T* row, int64_t count, int64_t panel_stride, float* panels) {
  constexpr int64_t kChunk = kPackedChunk<V, kWidth>;
  static_assert(kChunk % V::kWidth == 0);
  if (count == kChunk && kChunk == kWidth) {
    for (int64_t i = 0; i < kChunk; i += V::kWidth) V::load(row + i).store(panels + i);
    return;
  }
  float wide[kChunk];
  const int64_t padded = (count + kWidth - 1) / kWidth * kWidth;
  for_each_vector<V>(count, [&](int64_t i, auto lanes) { lanes.load(row + i).store(wide + i); });
  set_zero<V>(wide + count, padded - count);
  for (int64_t i = 0; i < padded; i += kWidth)
    __builtin_memcpy(panels + i / kWidth * panel_stride, wide + i, kWidth * sizeof(float));
}

template <class V, class T, int64_t kWidth>
void pack_along(const PanelSource& source, int64_t panel_stride, float* panels) {
  constexpr int64_t kChunk = kPackedChunk<V, kWidth>;
  for (int64_t first = 0; first < source.count; first += kChunk, panels += kChunk / kWidth * panel_stride) {
    const int64_t count = source.count - first < kChunk ? source.count - first : kChunk;
    const T* row = static_cast<const T*>(source.values) + first;
    for (int64_t at = 0; at < source.depth; ++at, row += source.stride)
      pack_chunk<V, T, kWidth>(row, count, panel_stride, panels + at * kWidth);
  }
}

// put(i, rows): element i of the depth of at most V::kWidth rows of the source, zeros for others. Up to padded_depth,
// with zeros after the source's depth.
template <class V, class T, class Put>
inline void transpose_rows(const PanelSource& source, int64_t padded_depth, const Put& put) {
  static_assert(V::kWidth == 16);
  for_each_vector<V>(source.depth, [&](int64_t at, auto lanes) {
    const int64_t depths = padded_depth - at < V::kWidth ? padded_depth - at : V::kWidth;
    V rows[16];
    for (int64_t i = 0; i < 16; ++i)
      rows[i] =
          i < source.count ? lanes.load(static_cast<const T*>(source.values) + i * source.stride + at) : V::all(0);
    transpose(rows);
    for (int64_t i = 0; i < depths; ++i) put(at + i, rows[i]);
  });
}

// Rows of the source from `first` on, at most that many; beyond its last none.
template <class V, class T>
inline PanelSource rows_from(const PanelSource& source, int64_t first, int64_t most) {
  const int64_t left = source.count - first;
  return {.values = static_cast<const T*>(source.values) + first * source.stride,
          .stride = source.stride,
          .count = left < most ? left : most,
          .depth = source.depth};
}

// Where a panel is narrower than a vector, what is written beyond its end is written over by what comes next.
template <class V, class T, int64_t kWidth>
void pack_across(const PanelSource& source, int64_t panel_stride, float* panels) {
  constexpr int64_t kStep = kWidth < V::kWidth ? kWidth : V::kWidth;
  static_assert(kWidth % kStep == 0 && V::kWidth - kStep <= kPackSlack);
  for (int64_t first = 0; first < source.count; first += kWidth, panels += panel_stride)
    for (int64_t i = 0; i < kWidth; i += kStep)
      transpose_rows<V, T>(rows_from<V, T>(source, first + i, kStep), source.depth,
                           [&](int64_t at, V value) { value.store(panels + at * kWidth + i); });
}

// c = a b + addend of a panel of A and one of B.
template <class V>
inline void panel_tile(const float* a, const float* b, int64_t depth, const float* addend, int64_t addend_stride,
                       float* c, int64_t c_stride) {
  constexpr int kRows = V::kPanelRows, kVectors = V::kPanelVectors;
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int i = 0; i < kVectors; ++i) {
      sum[row][i] = V::all(0);
      // Rows of C are far apart. Into the second level: at a distance of a power of two they would drive each other and
      // the panels out of the first, worth a tenth of such a product.
      __builtin_prefetch(c + row * c_stride + i * V::kWidth, /*for writing=*/0, /*level 2*/ 2);
    }
  }
#pragma GCC unroll 4
  for (int64_t at = 0; at < depth; ++at, a += kRows, b += kPanelColumns<V>) {
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
  // All is loaded before any is stored: a load after a store at a distance of 4 KiB would wait for it.
  if (addend != nullptr) {
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
      for (int i = 0; i < kVectors; ++i)
        sum[row][i] = sum[row][i] + V::load(addend + row * addend_stride + i * V::kWidth);
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int i = 0; i < kVectors; ++i) sum[row][i].store(c + row * c_stride + i * V::kWidth);
  }
}

// Fetches part `number` of `parts` of a panel of B.
template <class V>
inline void fetch_part(const float* b, int64_t depth, int64_t number, int64_t parts) {
  const int64_t size = depth * kPanelColumns<V>, share = (size / parts + V::kWidth) / V::kWidth * V::kWidth;
  const int64_t first = number * share, last = first + share < size ? first + share : size;
  for (int64_t i = first; i < last; i += V::kWidth) __builtin_prefetch(b + i, /*for writing=*/0, /*level 2*/ 2);
}

template <class V>
void multiply_panels(const PanelProduct32& product) {
  constexpr int64_t kRows = kPanelRows<V>, kColumns = kPanelColumns<V>;
  const float* a = product.a;
  const int64_t panels = (product.rows + kRows - 1) / kRows;
  for (int64_t row = 0; row < product.rows; row += kRows, a += product.depth * kRows) {
    if (product.next_b != nullptr) fetch_part<V>(product.next_b, product.depth, row / kRows, panels);
    const float* addend = product.addend == nullptr ? nullptr : product.addend + row * product.addend_stride;
    float* const c = product.c + row * product.c_stride;
    if (row + kRows <= product.rows && product.columns == kColumns) {
      panel_tile<V>(a, product.b, product.depth, addend, product.addend_stride, c, product.c_stride);
      continue;
    }
    float whole[kRows * kColumns];
    panel_tile<V>(a, product.b, product.depth, nullptr, 0, whole, kColumns);
    for (int64_t i = 0; i < kRows && row + i < product.rows; ++i) {
      for_each_vector<V>(product.columns, [&](int64_t column, auto lanes) {
        V value = lanes.load(whole + i * kColumns + column);
        if (addend != nullptr) value = value + lanes.load(addend + i * product.addend_stride + column);
        lanes.store(c + i * product.c_stride + column, value);
      });
    }
  }
}

}  // namespace espalier::kernels
