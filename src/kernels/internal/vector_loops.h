// Loops over a row in vectors of 16, the last one partial. Everything is a template over the vector type, which is
// a different type in every unit: no function here is ever shared between instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier::kernels {

template <class V>
struct FullVector {
  template <class T>
  V load(const T* from) const {
    return V::load(from);
  }
  template <class T>
  void store(T* to, V value) const {
    value.store(to);
  }
  V live(V value) const { return value; }
};

// The first `count` lanes; the others read as zero and are not written.
template <class V>
struct PartVector {
  int64_t count;

  template <class T>
  V load(const T* from) const {
    T lanes[V::kWidth] = {};
    __builtin_memcpy(lanes, from, static_cast<size_t>(count) * sizeof(T));
    return V::load(lanes);
  }
  template <class T>
  void store(T* to, V value) const {
    T lanes[V::kWidth];
    value.store(lanes);
    __builtin_memcpy(to, lanes, static_cast<size_t>(count) * sizeof(T));
  }
  // Lanes beyond `count` set to zero, for sums.
  V live(V value) const {
    float lanes[V::kWidth];
    value.store(lanes);
    return load(lanes);
  }
};

// body(index of the first lane, lanes)
template <class V, class Body>
inline void for_each_vector(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + V::kWidth <= count; i += V::kWidth) body(i, FullVector<V>{});
  if (i < count) body(i, PartVector<V>{count - i});
}

// Sum of term(index of the first lane, lanes) over a row, in four running vectors. Dead lanes must be zero.
template <class V, class Term>
inline float row_sum(int64_t count, const Term& term) {
  V sum0 = V::all(0), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t i = 0;
  for (; i + 4 * V::kWidth <= count; i += 4 * V::kWidth) {
    sum0 = sum0 + term(i, FullVector<V>{});
    sum1 = sum1 + term(i + V::kWidth, FullVector<V>{});
    sum2 = sum2 + term(i + 2 * V::kWidth, FullVector<V>{});
    sum3 = sum3 + term(i + 3 * V::kWidth, FullVector<V>{});
  }
  for (; i + V::kWidth <= count; i += V::kWidth) sum0 = sum0 + term(i, FullVector<V>{});
  if (i < count) sum1 = sum1 + term(i, PartVector<V>{count - i});
  return sum((sum0 + sum1) + (sum2 + sum3));
}

template <class V>
inline void set_zero(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = 0;
}

}  // namespace espalier::kernels
