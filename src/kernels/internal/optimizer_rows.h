// Updates of optimizers, sums, and the measures of gradients.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"
#include "spec/optimizers/list.h"

namespace espalier::kernels {

// One pass over memory.
template <class V, class T, class Optimizer>
void update_elements(const OptimizerElements& args, int64_t first, int64_t last) {
  typename Optimizer::Constants by;
  __builtin_memcpy(&by, &args.constants, sizeof(by));
  for_each_vector<V>(last - first, [&, by](int64_t offset, auto lanes) {
    const int64_t i = first + offset;
    spec::OptimizerElement<V> element;
    element.weight = lanes.load(args.master + i);
    for (int state = 0; state < Optimizer::kNumStates; ++state)
      element.states[state] = lanes.load(args.states[state] + i);
    element.grad = lanes.load(args.grad + i);
    Optimizer::update(element, by);
    for (int state = 0; state < Optimizer::kNumStates; ++state)
      lanes.store(args.states[state] + i, element.states[state]);
    if constexpr (Optimizer::kSecondPass != spec::SecondPass::kNone) {
      lanes.store(args.grad + i, element.grad);
      return;
    }
    lanes.store(args.master + i, element.weight);
    if constexpr (!Optimizer::kAverages) element.value = element.weight;
    if (args.value != nullptr) lanes.store(static_cast<T*>(args.value) + i, element.value);
  });
}

template <class V, class T, class... Optimizer>
constexpr OptimizerKernels optimizer_kernels(spec::OptimizerList<Optimizer...>) {
  return {{update_elements<V, T, Optimizer>...}};
}

// The loops below leave vectorisation to the compiler: sixteen running sums, added in order at the end, so that the
// result does not depend on the instruction set. The square of a float is exact in double.
template <class V>
double sum_of_squares(const float* values, int64_t count) {
  double sums[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int lane = 0; lane < 16; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (int lane = 0; i < count; ++i, ++lane) sums[lane] += static_cast<double>(values[i]) * values[i];
  double total = 0;
  for (const double part : sums) total += part;
  return total;
}

template <class V>
int64_t count_zeros(const float* values, int64_t count) {
  int64_t zeros = 0;
  for (int64_t i = 0; i < count; ++i) zeros += values[i] == 0;
  return zeros;
}

// x - x is NaN for infinity and NaN, else zero.
template <class V>
int64_t count_not_finite(const float* values, int64_t count) {
  int64_t bad = 0;
  for (int64_t i = 0; i < count; ++i) bad += !(values[i] - values[i] == 0);
  return bad;
}

template <class V>
void add_partials(const float* partials, int64_t num_partials, int64_t columns, int64_t first, int64_t last,
                  float* sums) {
  for (int64_t column = first; column < last; ++column) sums[column] = partials[column];
  for (int64_t part = 1; part < num_partials; ++part) {
    const float* row = partials + part * columns;
    for (int64_t column = first; column < last; ++column) sums[column] += row[column];
  }
}

// Rows are added one after another; four are read at a time, so that the sums are loaded and stored once for them.
template <class V, class T>
void column_sums(const void* x, int64_t columns, int64_t first, int64_t last, float* sums) {
  const T* row = static_cast<const T*>(x) + first * columns;
  set_zero<V>(sums, columns);
  for (; first + 4 <= last; first += 4, row += 4 * columns) {
    for_each_vector<V>(columns, [&](int64_t i, auto lanes) {
      const V two = (lanes.load(sums + i) + lanes.load(row + i)) + lanes.load(row + columns + i);
      lanes.store(sums + i, (two + lanes.load(row + 2 * columns + i)) + lanes.load(row + 3 * columns + i));
    });
  }
  for (; first < last; ++first, row += columns) {
    for_each_vector<V>(
        columns, [&](int64_t i, auto lanes) { lanes.store(sums + i, lanes.load(sums + i) + lanes.load(row + i)); });
  }
}

template <class V, class T>
void add_to_row(float* sum, const void* row, int64_t count) {
  const T* values = static_cast<const T*>(row);
  for_each_vector<V>(
      count, [&](int64_t i, auto lanes) { lanes.store(sum + i, lanes.load(sum + i) + lanes.load(values + i)); });
}

}  // namespace espalier::kernels
