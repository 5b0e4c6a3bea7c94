// Bias, dropout and residual, rows [position][sample] in vectors V of storage type T. Masks: dropout.h.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"

namespace espalier::kernels {

template <class V, class T>
void dropout_row(const DropoutRows& args, int64_t row, float* sums) {
  const T* x = static_cast<const T*>(args.x) + row * args.columns;
  const T* bias = static_cast<const T*>(args.bias);
  const T* residual = args.residual == nullptr ? nullptr : static_cast<const T*>(args.residual) + row * args.columns;
  T* y = static_cast<T*>(args.y) + row * args.columns;
  const uint64_t sample = args.masked ? static_cast<uint64_t>(args.sample_numbers[row % args.num_samples]) : 0;
  const uint32_t position = static_cast<uint32_t>(args.first_position + row / args.num_samples);
  const uint32_t sample_high = static_cast<uint32_t>(sample >> 32) << 16, sample_low = static_cast<uint32_t>(sample);
  const V scale = V::all(args.scale);
  for (int64_t begin = 0; begin < args.columns; begin += kPhiloxWords) {
    alignas(64) uint32_t words[kPhiloxWords];
    if (args.masked) {
      philox_words(scale, args.keys, static_cast<uint32_t>(begin / 4), position, sample_high, sample_low, words);
    }
    const int64_t count = args.columns - begin < kPhiloxWords ? args.columns - begin : int64_t{kPhiloxWords};
    for_each_vector<V>(count, [&](int64_t i, auto lanes) {
      const int64_t column = begin + i;
      V value = lanes.load(x + column);
      if (bias != nullptr) value = value + lanes.load(bias + column);
      if (args.masked) value = value.keep(words + i, args.threshold) * scale;
      if (sums != nullptr) lanes.store(sums + column, lanes.load(sums + column) + value);
      if (residual != nullptr) value = value + lanes.load(residual + column);
      lanes.store(y + column, value);
    });
  }
}

template <class V, class T>
void dropout_rows(const DropoutRows& args, int64_t first, int64_t last, float* sums) {
  if (sums != nullptr) set_zero<V>(sums, args.columns);
  for (int64_t row = first; row < last; ++row) dropout_row<V, T>(args, row, sums);
}

}  // namespace espalier::kernels
