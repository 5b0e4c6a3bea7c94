// Layer norm, rows of x in vectors V of storage type T.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"

namespace espalier::kernels {

template <class V, class T>
void layer_norm_forward(const LayerNormForward& args, int64_t first, int64_t last) {
  const T* weight = static_cast<const T*>(args.weight);
  const T* bias = static_cast<const T*>(args.bias);
  const V columns = V::all(static_cast<float>(args.columns));
  for (int64_t row = first; row < last; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.columns;
    T* y = static_cast<T*>(args.y) + row * args.columns;
    const float total = row_sum<V>(args.columns, [&](int64_t i, auto lanes) { return lanes.load(x + i); });
    const V mean = V::all(total) / columns;
    // The deviations, not the squares of x: they do not cancel where the mean is large.
    const float squares = row_sum<V>(args.columns, [&](int64_t i, auto lanes) {
      const V deviation = lanes.live(lanes.load(x + i) - mean);
      return deviation * deviation;
    });
    const V rstd = V::all(1) / sqrt(V::all(squares) / columns + V::all(args.epsilon));
    for_each_vector<V>(args.columns, [&](int64_t i, auto lanes) {
      const V normalized = (lanes.load(x + i) - mean) * rstd;
      lanes.store(y + i, fma(normalized, lanes.load(weight + i), lanes.load(bias + i)));
    });
    args.mean[row] = first_lane(mean);
    args.rstd[row] = first_lane(rstd);
  }
}

// dx = rstd (g - mean(g) - n mean(g n)), where n is the normalized x and g = dy * weight.
template <class V, class T>
void layer_norm_backward(const LayerNormBackward& args, int64_t first, int64_t last, float* weight_sums,
                         float* bias_sums) {
  const T* weight = static_cast<const T*>(args.weight);
  set_zero<V>(weight_sums, args.columns);
  set_zero<V>(bias_sums, args.columns);
  for (int64_t row = first; row < last; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.columns;
    const T* dy = static_cast<const T*>(args.dy) + row * args.columns;
    T* dx = static_cast<T*>(args.dx) + row * args.columns;
    const V mean = V::all(args.mean[row]), rstd = V::all(args.rstd[row]);
    V sum_g = V::all(0), sum_gn = V::all(0);
    for_each_vector<V>(args.columns, [&](int64_t i, auto lanes) {
      const V up = lanes.load(dy + i);
      const V normalized = (lanes.load(x + i) - mean) * rstd;
      const V g = up * lanes.load(weight + i);  // zero in dead lanes
      sum_g = sum_g + g;
      sum_gn = fma(g, normalized, sum_gn);
      lanes.store(weight_sums + i, fma(up, normalized, lanes.load(weight_sums + i)));
      lanes.store(bias_sums + i, lanes.load(bias_sums + i) + up);
    });
    const V columns = V::all(static_cast<float>(args.columns));
    const V mean_g = V::all(sum(sum_g)) / columns, mean_gn = V::all(sum(sum_gn)) / columns;
    for_each_vector<V>(args.columns, [&](int64_t i, auto lanes) {
      const V normalized = (lanes.load(x + i) - mean) * rstd;
      const V centered = lanes.load(dy + i) * lanes.load(weight + i) - mean_g;
      lanes.store(dx + i, (centered - normalized * mean_gn) * rstd);
    });
  }
}

}  // namespace espalier::kernels
