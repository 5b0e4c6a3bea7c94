// Rotary embedding, heads of x in vectors V of storage type T. A row is a token: its groups one after another, each
// `queries` heads of queries | a head of keys | a head of values.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"

namespace espalier::kernels {

// Pairs (i, i + half): y = (x0 cos - x1 sin, x1 cos + x0 sin).
template <class V, class T>
struct RotateHalves {
  const float *cosine, *sine;
  float sign;
  int64_t half;

  RotateHalves(const RotaryRows& args, int64_t position)
      : cosine(args.cosine + position * (args.rotary_size / 2)),
        sine(args.sine + position * (args.rotary_size / 2)),
        sign(args.sine_sign),
        half(args.rotary_size / 2) {}

  void operator()(const T* x, T* y) const {
    for_each_vector<V>(half, [&](int64_t i, auto lanes) {
      const V c = lanes.load(cosine + i), s = lanes.load(sine + i) * V::all(sign);
      const V x0 = lanes.load(x + i), x1 = lanes.load(x + half + i);
      lanes.store(y + i, x0 * c - x1 * s);
      lanes.store(y + half + i, x1 * c + x0 * s);
    });
  }
};

// Pairs (2i, 2i + 1): y = x cos + (neighbour) (-+ sin), with the cosines and sines spread over the channels once for
// all heads of a token.
template <class V, class T>
struct RotatePairs {
  float cosine[kMaxRotarySize], sine[kMaxRotarySize];
  int64_t size;

  RotatePairs(const RotaryRows& args, int64_t position) : size(args.rotary_size) {
    const float* c = args.cosine + position * (size / 2);
    const float* s = args.sine + position * (size / 2);
    for (int64_t i = 0; i < size / 2; ++i) {
      cosine[2 * i] = cosine[2 * i + 1] = c[i];
      sine[2 * i] = -args.sine_sign * s[i];
      sine[2 * i + 1] = args.sine_sign * s[i];
    }
  }

  void operator()(const T* x, T* y) const {
    for_each_vector<V>(size, [&](int64_t i, auto lanes) {
      const V value = lanes.load(x + i);
      lanes.store(y + i, value * lanes.load(cosine + i) + swap_pairs(value) * lanes.load(sine + i));
    });
  }
};

template <class V, class T, template <class, class> class Rotate>
void rotate_rows(const RotaryRows& args, int64_t first, int64_t last) {
  const int64_t parts = args.queries + 2;
  for (int64_t row = first; row < last; ++row) {
    const Rotate<V, T> rotate(args, args.positions[row % args.num_samples * args.length + row / args.num_samples]);
    const T* x = static_cast<const T*>(args.x) + row * args.groups * parts * args.head_size;
    T* y = static_cast<T*>(args.y) + row * args.groups * parts * args.head_size;
    for (int64_t head = 0; head < args.groups * parts; ++head, x += args.head_size, y += args.head_size) {
      const int64_t turned = head % parts <= args.queries ? args.rotary_size : 0;
      if (turned > 0) rotate(x, y);
      __builtin_memcpy(y + turned, x + turned, static_cast<size_t>(args.head_size - turned) * sizeof(T));
    }
  }
}

}  // namespace espalier::kernels
