// Values kept between -c and c by c tanh(x / c), in vectors V: logits, attention scores (Gemma 2; Team Gemma 2024).
#pragma once

#include "kernels/internal/vector_loops.h"
#include "kernels/internal/vector_math.h"

namespace espalier::kernels {

template <class V>
void soft_cap(float* values, int64_t count, float cap) {
  const V inverse = V::all(1 / cap);
  for_each_vector<V>(count, [&](int64_t i, auto lanes) {
    lanes.store(values + i, V::all(cap) * tanh(lanes.load(values + i) * inverse));
  });
}

// Of soft_cap, by its result: 1 - tanh^2; 1 where there is none.
template <class V>
V soft_cap_slope(V capped, float inverse_cap) {
  const V t = capped * V::all(inverse_cap);
  return V::all(1) - t * t;
}

}  // namespace espalier::kernels
