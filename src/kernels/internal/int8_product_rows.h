// Products with int8 weights in vectors V: element by element a dot product in two running vectors, one for every other
// sixteen inputs, so that its bits depend on the two rows alone.
#pragma once

#include "kernels/internal/int8_product.h"
#include "kernels/internal/vector_loops.h"

namespace espalier::kernels {

template <class V, int kRows, int kColumns>
struct Int8Tile {
  V total[2][kRows][kColumns];

  template <class Lanes>
  void add(const float* x, int64_t x_stride, const int8_t* rows, int64_t stride, const Lanes& lanes, int which) {
    V left[kRows];
    for (int r = 0; r < kRows; ++r) left[r] = lanes.load(x + r * x_stride);
    for (int c = 0; c < kColumns; ++c) {
      const V right = lanes.load(rows + c * stride);
      for (int r = 0; r < kRows; ++r) total[which][r][c] = fma(left[r], right, total[which][r][c]);
    }
  }
};

// y of kRows tokens and kColumns outputs. A row alone is multiplied with one column at a time: memory is read fastest
// in one stream.
template <class V, int kRows, int kColumns>
inline void int8_tile(const Int8Product& args, int64_t token, int64_t output) {
  const int64_t inputs = args.inputs, stride = inputs + kInt8ScaleBytes;
  const float* const x = args.x + token * inputs;
  const int8_t* const rows = args.rows + output * stride;
  Int8Tile<V, kRows, kColumns> tile;
  for (auto& half : tile.total)
    for (auto& row : half)
      for (V& total : row) total = V::all(0);
  int64_t i = 0;
  for (; i + 2 * V::kWidth <= inputs; i += 2 * V::kWidth) {
    tile.add(x + i, inputs, rows + i, stride, FullVector<V>{}, 0);
    tile.add(x + i + V::kWidth, inputs, rows + i + V::kWidth, stride, FullVector<V>{}, 1);
  }
  if (i + V::kWidth <= inputs) {
    tile.add(x + i, inputs, rows + i, stride, FullVector<V>{}, 0);
    i += V::kWidth;
  }
  if (i < inputs) tile.add(x + i, inputs, rows + i, stride, PartVector<V>{inputs - i}, 1);
  for (int c = 0; c < kColumns; ++c) {
    float scale;
    __builtin_memcpy(&scale, rows + c * stride + inputs, sizeof scale);
    for (int r = 0; r < kRows; ++r)
      args.y[(token + r) * args.outputs + output + c] = sum(tile.total[0][r][c] + tile.total[1][r][c]) * scale;
  }
}

template <class V, int kRows>
inline void int8_rows(const Int8Product& args, int64_t token, int64_t first, int64_t last) {
  constexpr int kColumns = kRows > 1 ? (V::kTileColumns + 1) / 2 : 1;
  int64_t output = first;
  for (; output + kColumns <= last; output += kColumns) int8_tile<V, kRows, kColumns>(args, token, output);
  for (; output < last; ++output) int8_tile<V, kRows, 1>(args, token, output);
}

template <class V>
void int8_block(const Int8Product& args, int64_t block) {
  const int64_t first = block * kInt8Block;
  const int64_t last = args.outputs - first < kInt8Block ? args.outputs : first + kInt8Block;
  int64_t token = 0;
  for (; token + V::kTileRows <= args.tokens; token += V::kTileRows)
    int8_rows<V, V::kTileRows>(args, token, first, last);
  for (; token < args.tokens; ++token) int8_rows<V, 1>(args, token, first, last);
}

}  // namespace espalier::kernels
