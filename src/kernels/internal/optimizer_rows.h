// Updates of optimizers, sums, and the measures of gradients.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"
#include "spec/optimizers/list.h"
#include "spec/stored_state.h"

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

// `count` elements of a state from element `first` on, at most kPhiloxWords of them.
template <class V>
void load_state(const StoredElements::State& state, int64_t first, int64_t count, float* values) {
  if (state.type == spec::StateType::kBf16) {
    const Bf16* from = static_cast<const Bf16*>(state.data) + first;
    for_each_vector<V>(count, [&](int64_t i, auto lanes) { lanes.store(values + i, lanes.load(from + i)); });
    return;
  }
  const uint8_t* block = static_cast<const uint8_t*>(state.data) + first / spec::kMomentBlock * spec::kMomentBlockBytes;
  for (int64_t i = 0; i < count; i += spec::kMomentBlock, block += spec::kMomentBlockBytes)
    spec::load_block<V>(block, state.has_sign, values + i);
}

// `random`: of each element, 16 bits from bit `shift` on.
template <class V>
void store_state(const StoredElements::State& state, int64_t first, int64_t count, const float* values,
                 const uint32_t* random, uint32_t shift) {
  if (state.type == spec::StateType::kBf16) {
    uint16_t rounded[kPhiloxWords];
    for (int64_t i = 0; i < kPhiloxWords; ++i)
      rounded[i] = spec::MomentBits<V>::to_bf16(spec::MomentBits<V>::bits_of(values[i]), random[i] >> shift & 0xFFFF);
    __builtin_memcpy(static_cast<uint16_t*>(state.data) + first, rounded, static_cast<size_t>(count) * 2);
    return;
  }
  uint8_t* block = static_cast<uint8_t*>(state.data) + first / spec::kMomentBlock * spec::kMomentBlockBytes;
  for (int64_t i = 0; i < count; i += spec::kMomentBlock, block += spec::kMomentBlockBytes)
    spec::store_block<V>(values + i, random + i, shift, state.has_sign, block);
}

// As update_elements, chunk by chunk of what one call of the generator serves: states are widened into a buffer that
// stays in the first cache, updated and rounded back.
template <class V, class T, class Optimizer>
void update_stored(const StoredElements& args, int64_t first, int64_t last, int64_t number) {
  constexpr int kStates = Optimizer::kNumStates;
  alignas(64) float widened[kStates > 0 ? kStates : 1][kPhiloxWords] = {};
  alignas(64) uint32_t words[2 * kPhiloxWords] = {};  // those of a chunk begin at `skipped`; those behind are not used
  for (int64_t count; first < last; first += count, number += count) {
    const int64_t skipped = number % kPhiloxWords, counter = (number - skipped) / 4;
    count = last - first < kPhiloxWords - skipped ? last - first : kPhiloxWords - skipped;
    philox_words(V::all(0), args.keys, static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                 static_cast<uint32_t>(args.step), static_cast<uint32_t>(args.step >> 32), words);
    OptimizerElements chunk = args.elements;
    chunk.master += first;
    chunk.grad += first;
    if (chunk.value != nullptr) chunk.value = static_cast<T*>(chunk.value) + first;
    for (int state = 0; state < kStates; ++state) {
      const bool is_wide = args.states[state].type == spec::StateType::kFp32;
      if (!is_wide) load_state<V>(args.states[state], first, count, widened[state]);
      chunk.states[state] = is_wide ? chunk.states[state] + first : widened[state];
    }
    update_elements<V, T, Optimizer>(chunk, 0, count);
    for (int state = 0; state < kStates; ++state)
      if (args.states[state].type != spec::StateType::kFp32)
        store_state<V>(args.states[state], first, count, widened[state], words + skipped,
                       static_cast<uint32_t>(state) * spec::kRandomBits);
  }
}

template <class V, class T, class... Optimizer>
constexpr OptimizerKernels optimizer_kernels(spec::OptimizerList<Optimizer...>) {
  return {{update_elements<V, T, Optimizer>...}, {update_stored<V, T, Optimizer>...}};
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
