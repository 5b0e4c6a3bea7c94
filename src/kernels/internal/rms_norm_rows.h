// RMS norm, rows of x in vectors V of storage type T; and the same of the query and key heads of a fused projection,
// where every head is a row with a weight of its kind.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"

namespace espalier::kernels {

// Returns 1 / sqrt(mean square + epsilon).
template <class V, class T>
inline float rms_norm_row(const T* x, const T* weight, T* y, int64_t columns, float epsilon) {
  const float squares = row_sum<V>(columns, [&](int64_t i, auto lanes) {
    const V value = lanes.load(x + i);
    return value * value;
  });
  const V rstd = V::all(1) / sqrt(V::all(squares) / V::all(static_cast<float>(columns)) + V::all(epsilon));
  for_each_vector<V>(
      columns, [&](int64_t i, auto lanes) { lanes.store(y + i, lanes.load(x + i) * rstd * lanes.load(weight + i)); });
  return first_lane(rstd);
}

// dx = rstd (g - n mean(g n)), where n is the normalized x and g = dy * weight. Adds to weight_sums.
template <class V, class T>
inline void rms_norm_row_backward(const T* x, const T* weight, const T* dy, T* dx, float rstd_of_row, int64_t columns,
                                  float* weight_sums) {
  const V rstd = V::all(rstd_of_row);
  V sum_gn = V::all(0);
  for_each_vector<V>(columns, [&](int64_t i, auto lanes) {
    const V up = lanes.load(dy + i), normalized = lanes.load(x + i) * rstd;
    sum_gn = fma(up * lanes.load(weight + i), normalized, sum_gn);  // zero in dead lanes
    lanes.store(weight_sums + i, fma(up, normalized, lanes.load(weight_sums + i)));
  });
  const V mean_gn = V::all(sum(sum_gn)) / V::all(static_cast<float>(columns));
  for_each_vector<V>(columns, [&](int64_t i, auto lanes) {
    const V normalized = lanes.load(x + i) * rstd, g = lanes.load(dy + i) * lanes.load(weight + i);
    lanes.store(dx + i, (g - normalized * mean_gn) * rstd);
  });
}

template <class V, class T>
void rms_norm_forward(const RmsNormForward& args, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const int64_t start = row * args.columns;
    args.rstd[row] = rms_norm_row<V>(static_cast<const T*>(args.x) + start, static_cast<const T*>(args.weight),
                                     static_cast<T*>(args.y) + start, args.columns, args.epsilon);
  }
}

template <class V, class T>
void rms_norm_backward(const RmsNormBackward& args, int64_t first, int64_t last, float* weight_sums) {
  set_zero<V>(weight_sums, args.columns);
  for (int64_t row = first; row < last; ++row) {
    const int64_t start = row * args.columns;
    rms_norm_row_backward<V>(static_cast<const T*>(args.x) + start, static_cast<const T*>(args.weight),
                             static_cast<const T*>(args.dy) + start, static_cast<T*>(args.dx) + start, args.rstd[row],
                             args.columns, weight_sums);
  }
}

// ---- of heads: a row is a group, `queries` heads of queries | a head of keys | a head of values

template <class V, class T>
void qk_norm_forward(const QkNormForward& args, int64_t first, int64_t last) {
  const T* query_weight = static_cast<const T*>(args.query_weight);
  const T* key_weight = static_cast<const T*>(args.key_weight);
  for (int64_t row = first; row < last; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * (args.queries + 2) * args.head_size;
    T* y = static_cast<T*>(args.y) + row * (args.queries + 2) * args.head_size;
    float* rstd = args.rstd + row * (args.queries + 1);
    for (int64_t head = 0; head <= args.queries; ++head, x += args.head_size, y += args.head_size) {
      rstd[head] = rms_norm_row<V>(x, head < args.queries ? query_weight : key_weight, y, args.head_size, args.epsilon);
    }
    __builtin_memcpy(y, x, static_cast<size_t>(args.head_size) * sizeof(T));
  }
}

template <class V, class T>
void qk_norm_backward(const QkNormBackward& args, int64_t first, int64_t last, float* query_sums, float* key_sums) {
  const T* query_weight = static_cast<const T*>(args.query_weight);
  const T* key_weight = static_cast<const T*>(args.key_weight);
  set_zero<V>(query_sums, args.head_size);
  set_zero<V>(key_sums, args.head_size);
  for (int64_t row = first; row < last; ++row) {
    const int64_t start = row * (args.queries + 2) * args.head_size;
    const float* rstd = args.rstd + row * (args.queries + 1);
    for (int64_t head = 0; head <= args.queries; ++head) {
      const int64_t at = start + head * args.head_size;
      const bool is_query = head < args.queries;
      rms_norm_row_backward<V>(static_cast<const T*>(args.x) + at, is_query ? query_weight : key_weight,
                               static_cast<const T*>(args.dy) + at, static_cast<T*>(args.dx) + at, rstd[head],
                               args.head_size, is_query ? query_sums : key_sums);
    }
    const int64_t value = start + (args.queries + 1) * args.head_size;
    __builtin_memcpy(static_cast<T*>(args.dx) + value, static_cast<const T*>(args.dy) + value,
                     static_cast<size_t>(args.head_size) * sizeof(T));
  }
}

}  // namespace espalier::kernels
