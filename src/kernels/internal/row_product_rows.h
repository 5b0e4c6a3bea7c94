// Products of rows in vectors V of storage type T: element by element a dot product in one running vector, so that
// its bits depend on the two rows alone.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"

namespace espalier::kernels {

// sums[r][column + c] = row r of x times row c of weight. A row alone is multiplied with one column at a time: memory
// is read fastest in one stream. Several rows fetch the block after this one into the second-level cache, since several
// streams at once are too much for the processor's own prefetching.
template <class V, class T, int kRows, int kColumns>
inline void product_tile(const T* x, const T* weight, int64_t inputs, float (*sums)[kProductBlock], int64_t column) {
  V total[kRows][kColumns];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c) total[r][c] = V::all(0);
  for_each_vector<V>(inputs, [&](int64_t i, auto lanes) {
    V left[kRows];
    for (int r = 0; r < kRows; ++r) left[r] = lanes.load(x + r * inputs + i);
    for (int c = 0; c < kColumns; ++c) {
      if constexpr (kRows > 1)
        __builtin_prefetch(weight + (kProductBlock + c) * inputs + i, /*for writing=*/0, /*level 2*/ 2);
      const V right = lanes.load(weight + c * inputs + i);
      for (int r = 0; r < kRows; ++r) total[r][c] = fma(left[r], right, total[r][c]);
    }
  });
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c) sums[r][column + c] = sum(total[r][c]);
}

template <class V, class T, int kRows>
inline void product_rows(const RowProduct& args, int64_t token, int64_t output, int64_t count) {
  float sums[kRows][kProductBlock];
  const T* const x = static_cast<const T*>(args.x) + token * args.inputs;
  const T* const weight = static_cast<const T*>(args.weight) + output * args.inputs;
  int64_t column = 0;
  for (; kRows > 1 && column + V::kTileColumns <= count; column += V::kTileColumns)
    product_tile<V, T, kRows, V::kTileColumns>(x, weight + column * args.inputs, args.inputs, sums, column);
  for (; column < count; ++column)
    product_tile<V, T, kRows, 1>(x, weight + column * args.inputs, args.inputs, sums, column);
  for (int64_t r = 0; r < kRows; ++r)
    for_each_vector<V>(count, [&](int64_t i, auto lanes) {
      V value = lanes.load(&sums[r][i]);
      if (args.bias != nullptr) value = value + lanes.load(static_cast<const T*>(args.bias) + output + i);
      const int64_t place = (token + r) * args.outputs + output + i;
      if (args.fp32_result)
        lanes.store(static_cast<float*>(args.y) + place, value);
      else
        lanes.store(static_cast<T*>(args.y) + place, value);
    });
}

template <class V, class T>
void row_product(const RowProduct& args, int64_t block) {
  const int64_t output = block * kProductBlock;
  const int64_t count = args.outputs - output < kProductBlock ? args.outputs - output : kProductBlock;
  int64_t token = 0;
  for (; token + V::kTileRows <= args.tokens; token += V::kTileRows)
    product_rows<V, T, V::kTileRows>(args, token, output, count);
  for (; token < args.tokens; ++token) product_rows<V, T, 1>(args, token, output, count);
}

}  // namespace espalier::kernels
