// The row-wise parts of a cross entropy over a block of logits, in vectors V; T is the type that logits are rounded to.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/soft_cap_rows.h"
#include "kernels/internal/vector_loops.h"
#include "kernels/internal/vector_math.h"

namespace espalier::kernels {

template <class V, class T>
inline V rounded_to(V x) {
  T stored[V::kWidth];
  x.store(stored);
  return V::load(stored);
}

template <class V, class T>
inline float rounded_to(float x) {
  return first_lane(rounded_to<V, T>(V::all(x)));
}

template <class V>
float largest_of(const float* values, int64_t count) {
  float largest = -__builtin_inff();
  int64_t i = 0;
  if (count >= V::kWidth) {
    V lanes = V::load(values);
    for (i = V::kWidth; i + V::kWidth <= count; i += V::kWidth) lanes = max(lanes, V::load(values + i));
    float stored[V::kWidth];
    lanes.store(stored);
    for (const float value : stored) largest = value > largest ? value : largest;
  }
  for (; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
  return largest;
}

template <class V, class T>
void softmax_accumulate(const LogitRow& row, SoftmaxSums* sums) {
  // Rounding is monotonic: the largest rounded logit is the rounded largest.
  const float in_block = rounded_to<V, T>(largest_of<V>(row.logits, row.count));
  const float largest = in_block > sums->largest ? in_block : sums->largest;
  const V shift = V::all(largest);
  const float sum = row_sum<V>(row.count, [&](int64_t i, auto lanes) {
    return lanes.live(exp(rounded_to<V, T>(lanes.load(row.logits + i)) - shift));
  });
  const double before = sums->sum == 0 ? 0 : sums->sum * __builtin_exp(static_cast<double>(sums->largest) - largest);
  sums->sum = before + sum;
  sums->largest = largest;
  if (row.label >= 0 && row.label < row.count) sums->label_logit = rounded_to<V, T>(row.logits[row.label]);
}

// Out may be over the logits themselves where it is of their type.
template <class V, class T, class In, class Out>
void softmax_gradient_of(const In* logits, int64_t count, int64_t label, const LogitGradient& from, Out* out) {
  if (from.loss == 0) {  // whatever the logits are
    for_each_vector<V>(count, [&](int64_t i, auto lanes) { lanes.store(out + i, V::all(0)); });
    return;
  }
  const V shift = V::all(from.log_sum_exp), factor = V::all(from.loss + from.log_sum);
  const bool has_label = label >= 0 && label < count;
  const V label_logit = has_label ? PartVector<V>{1}.load(logits + label) : V::all(0);
  const auto gradient_of = [&](V logit) { return exp(rounded_to<V, T>(logit) - shift) * factor; };
  if (from.inverse_cap == 0)
    for_each_vector<V>(count,
                       [&](int64_t i, auto lanes) { lanes.store(out + i, gradient_of(lanes.load(logits + i))); });
  else
    for_each_vector<V>(count, [&](int64_t i, auto lanes) {
      const V logit = lanes.load(logits + i);
      lanes.store(out + i, gradient_of(logit) * soft_cap_slope(logit, from.inverse_cap));
    });
  if (!has_label) return;
  const V probability = exp(rounded_to<V, T>(label_logit) - shift);
  // Apart, so that without a z-loss the loss's own gradient is rounded once.
  const V of_loss = (probability - V::all(1)) * V::all(from.loss);
  const V of_both = from.log_sum == 0 ? of_loss : of_loss + probability * V::all(from.log_sum);
  PartVector<V>{1}.store(out + label,
                         from.inverse_cap == 0 ? of_both : of_both * soft_cap_slope(label_logit, from.inverse_cap));
}

template <class V, class T, class Out>
void softmax_gradient(const LogitRow& row, const LogitGradient& from, void* gradient) {
  softmax_gradient_of<V, T>(row.logits, row.count, row.label, from, static_cast<Out*>(gradient));
}

template <class V, class T>
void softmax_gradient_rounded(const RoundedLogitRow& row, const LogitGradient& from, void* gradient) {
  softmax_gradient_of<V, T>(static_cast<const T*>(row.logits), row.count, row.label, from, static_cast<T*>(gradient));
}

template <class V, class T>
void round_row(const float* values, int64_t count, void* rounded) {
  T* out = static_cast<T*>(rounded);
  for_each_vector<V>(count, [&](int64_t i, auto lanes) { lanes.store(out + i, lanes.load(values + i)); });
}

}  // namespace espalier::kernels
