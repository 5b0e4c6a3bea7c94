// Products of rows in vectors V of storage type T: element by element a dot product in one running vector, so that
// its bits depend on the two rows alone.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"

namespace espalier::kernels {

// sums[r][column + c] = row r of x times row c of weight. A row alone is multiplied with one column at a time: memory
// is read fastest in one stream. The first of several rows fetch the block after this one into the second-level cache,
// since several streams at once are too much for the processor's own prefetching.
template <bool kFetchNext, class V, class T, int kRows, int kColumns>
[[gnu::always_inline]] inline void product_tile(const ProductPart& part, const T* x, const T* weight,
                                                V (*running)[kProductBlock], float (*sums)[kProductBlock],
                                                int64_t column) {
  V total[kRows][kColumns];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) total[r][c] = part.first() ? V::all(0) : running[r][column + c];
  for_each_vector<V>(part.end - part.begin, [&](int64_t from_begin, auto lanes) {
    const int64_t i = part.begin + from_begin;
    V left[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) left[r] = lanes.load(x + r * part.inputs + i);
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      if constexpr (kFetchNext)
        __builtin_prefetch(weight + (kProductBlock + c) * part.inputs + i, /*for writing=*/0, /*level 2*/ 2);
      const V right = lanes.load(weight + c * part.inputs + i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) total[r][c] = fma(left[r], right, total[r][c]);
    }
  });
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      if (part.last())
        sums[r][column + c] = sum(total[r][c]);
      else
        running[r][column + c] = total[r][c];
    }
}

// Several rows take the inputs in parts, so that the weights of one part stay in the first-level cache for all of them.
template <bool kFetchNext, class V, class T, int kRows>
inline void sum_products(const T* x, const T* weight, int64_t inputs, int64_t count, float (*sums)[kProductBlock]) {
  if constexpr (kRows == 1) {
    for (int64_t column = 0; column < count; ++column)
      product_tile<false, V, T, 1, 1>({0, inputs, inputs}, x, weight + column * inputs, nullptr, sums, column);
  } else {
    V running[kRows][kProductBlock];
    constexpr int64_t kBytesOfPart = 1536, kInputsOfPart = kBytesOfPart / static_cast<int64_t>(sizeof(T));
    const int64_t parts = (inputs + kInputsOfPart - 1) / kInputsOfPart;
    const int64_t length = (inputs + parts * V::kWidth - 1) / (parts * V::kWidth) * V::kWidth;
    for (int64_t begin = 0; begin < inputs; begin += length) {
      const ProductPart part{begin, begin + length < inputs ? begin + length : inputs, inputs};
      int64_t column = 0;
      for (; column + V::kTileColumns <= count; column += V::kTileColumns)
        for (int row = 0; row < kRows; row += V::kTileRows)
          product_tile<kFetchNext, V, T, V::kTileRows, V::kTileColumns>(
              part, x + row * inputs, weight + column * inputs, running + row, sums + row, column);
      for (; column < count; ++column)
        for (int row = 0; row < kRows; row += V::kTileRows)
          product_tile<false, V, T, V::kTileRows, 1>(part, x + row * inputs, weight + column * inputs, running + row,
                                                     sums + row, column);
    }
  }
}

// y[token][output ..] = `count` sums + bias.
template <class V, class T>
inline void store_products(const RowProduct& args, const float* sums, int64_t token, int64_t output, int64_t count) {
  for_each_vector<V>(count, [&](int64_t i, auto lanes) {
    V value = lanes.load(sums + i);
    if (args.bias != nullptr) value = value + lanes.load(static_cast<const T*>(args.bias) + output + i);
    const int64_t place = token * args.outputs + output + i;
    if (args.fp32_result)
      lanes.store(static_cast<float*>(args.y) + place, value);
    else
      lanes.store(static_cast<T*>(args.y) + place, value);
  });
}

template <bool kFetchNext, class V, class T, int kRows>
inline void product_rows(const RowProduct& args, int64_t token, int64_t output, int64_t count) {
  float sums[kRows][kProductBlock];
  const T* const x = static_cast<const T*>(args.x) + token * args.inputs;
  const T* const weight = static_cast<const T*>(args.weight) + output * args.inputs;
  sum_products<kFetchNext, V, T, kRows>(x, weight, args.inputs, count, sums);
  for (int64_t r = 0; r < kRows; ++r) store_products<V, T>(args, sums[r], token + r, output, count);
}

template <class V, class T>
void row_product(const RowProduct& args, int64_t block) {
  const int64_t output = block * kProductBlock;
  const int64_t count = args.outputs - output < kProductBlock ? args.outputs - output : kProductBlock;
  constexpr int kRowsTogether = 8;
  int64_t token = 0;
  if (args.tokens >= kRowsTogether) {
    product_rows<true, V, T, kRowsTogether>(args, token, output, count);
    token = kRowsTogether;
  }
  for (; token + kRowsTogether <= args.tokens; token += kRowsTogether)
    product_rows<false, V, T, kRowsTogether>(args, token, output, count);
  for (; token + V::kTileRows <= args.tokens; token += V::kTileRows)
    product_rows<true, V, T, V::kTileRows>(args, token, output, count);
  for (; token < args.tokens; ++token) product_rows<false, V, T, 1>(args, token, output, count);
}

}  // namespace espalier::kernels
