// Bias and GELU, rows of x in vectors V of storage type T. Gelu: GeluTanh<V> or GeluErf<V>.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"
#include "kernels/internal/vector_math.h"

namespace espalier::kernels {

template <class V, class T, class Gelu>
void bias_gelu_forward(const BiasGeluForward& args, int64_t first, int64_t last) {
  const T* bias = static_cast<const T*>(args.bias);
  for (int64_t row = first; row < last; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.columns;
    T* y = static_cast<T*>(args.y) + row * args.columns;
    for_each_vector<V>(args.columns, [&](int64_t i, auto lanes) {
      lanes.store(y + i, Gelu::value(lanes.load(x + i) + lanes.load(bias + i)));
    });
  }
}

template <class V, class T, class Gelu>
void bias_gelu_backward(const BiasGeluBackward& args, int64_t first, int64_t last, float* bias_sums) {
  const T* bias = static_cast<const T*>(args.bias);
  set_zero<V>(bias_sums, args.columns);
  for (int64_t row = first; row < last; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.columns;
    const T* dy = static_cast<const T*>(args.dy) + row * args.columns;
    T* dx = static_cast<T*>(args.dx) + row * args.columns;
    for_each_vector<V>(args.columns, [&](int64_t i, auto lanes) {
      const V down = lanes.load(dy + i) * Gelu::derivative(lanes.load(x + i) + lanes.load(bias + i));
      lanes.store(dx + i, down);
      lanes.store(bias_sums + i, lanes.load(bias_sums + i) + down);
    });
  }
}

}  // namespace espalier::kernels
