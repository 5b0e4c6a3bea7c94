// Bias and activation, rows of x in vectors V of storage type T. F: a function of one vector, with its derivative
// (GeluTanh<V>, GeluErf<V> of vector_math.h, and those below).
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"
#include "kernels/internal/vector_math.h"

namespace espalier::kernels {

template <class V>
struct Identity {
  static V value(V x) { return x; }
  static V derivative(V) { return V::all(1); }
};

// NaN passes through value(): max returns its second operand when either is NaN.
template <class V>
struct Relu {
  static V value(V x) { return max(V::all(0), x); }
  static V derivative(V x) { return select_positive(x, V::all(1), V::all(0)); }
};

template <class V>
struct SquaredRelu {
  static V value(V x) {
    const V positive = max(V::all(0), x);
    return positive * positive;
  }
  static V derivative(V x) {
    const V positive = max(V::all(0), x);
    return positive + positive;
  }
};

// The elements i .. of x plus bias; `bias` may be null.
template <class V, class T, class Lanes>
inline V biased(const T* x, const T* bias, int64_t i, Lanes lanes) {
  const V value = lanes.load(x + i);
  return bias == nullptr ? value : value + lanes.load(bias + i);
}

template <class V, class T, class F>
void activation_forward(const ActivationForward& args, int64_t first, int64_t last) {
  const T* bias = static_cast<const T*>(args.bias);
  for (int64_t row = first; row < last; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.columns;
    T* y = static_cast<T*>(args.y) + row * args.columns;
    for_each_vector<V>(args.columns,
                       [&](int64_t i, auto lanes) { lanes.store(y + i, F::value(biased<V>(x, bias, i, lanes))); });
  }
}

template <class V, class T, class F>
void activation_backward(const ActivationBackward& args, int64_t first, int64_t last, float* sums_or_null) {
  const T* bias = static_cast<const T*>(args.bias);
  if (sums_or_null != nullptr) set_zero<V>(sums_or_null, args.columns);
  for (int64_t row = first; row < last; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.columns;
    const T* dy = static_cast<const T*>(args.dy) + row * args.columns;
    T* dx = static_cast<T*>(args.dx) + row * args.columns;
    for_each_vector<V>(args.columns, [&](int64_t i, auto lanes) {
      const V down = lanes.load(dy + i) * F::derivative(biased<V>(x, bias, i, lanes));
      lanes.store(dx + i, down);
      if (sums_or_null != nullptr) lanes.store(sums_or_null + i, lanes.load(sums_or_null + i) + down);
    });
  }
}

// y = F(a) b of the halves a | b of a row of x, args.columns wide each.
template <class V, class T, class F>
void gated_forward(const ActivationForward& args, int64_t first, int64_t last) {
  const T* bias = static_cast<const T*>(args.bias);
  const T* bias_b = bias == nullptr ? nullptr : bias + args.columns;
  for (int64_t row = first; row < last; ++row) {
    const T* a = static_cast<const T*>(args.x) + row * 2 * args.columns;
    const T* b = a + args.columns;
    T* y = static_cast<T*>(args.y) + row * args.columns;
    for_each_vector<V>(args.columns, [&](int64_t i, auto lanes) {
      lanes.store(y + i, F::value(biased<V>(a, bias, i, lanes)) * biased<V>(b, bias_b, i, lanes));
    });
  }
}

// da = dy b F'(a), db = dy F(a).
template <class V, class T, class F>
void gated_backward(const ActivationBackward& args, int64_t first, int64_t last, float* sums_or_null) {
  const T* bias = static_cast<const T*>(args.bias);
  const T* bias_b = bias == nullptr ? nullptr : bias + args.columns;
  if (sums_or_null != nullptr) set_zero<V>(sums_or_null, 2 * args.columns);
  for (int64_t row = first; row < last; ++row) {
    const T* a = static_cast<const T*>(args.x) + row * 2 * args.columns;
    const T* b = a + args.columns;
    const T* dy = static_cast<const T*>(args.dy) + row * args.columns;
    T* da = static_cast<T*>(args.dx) + row * 2 * args.columns;
    T* db = da + args.columns;
    for_each_vector<V>(args.columns, [&](int64_t i, auto lanes) {
      const V up = lanes.load(dy + i), gate = biased<V>(a, bias, i, lanes);
      const V down_a = up * biased<V>(b, bias_b, i, lanes) * F::derivative(gate), down_b = up * F::value(gate);
      lanes.store(da + i, down_a);
      lanes.store(db + i, down_b);
      if (sums_or_null == nullptr) return;
      float* const sums_b = sums_or_null + args.columns;
      lanes.store(sums_or_null + i, lanes.load(sums_or_null + i) + down_a);
      lanes.store(sums_b + i, lanes.load(sums_b + i) + down_b);
    });
  }
}

}  // namespace espalier::kernels
