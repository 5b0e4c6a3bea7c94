// Rotary position embedding (kernels/rotary.h), by packs of qkv (vectors.cuh).
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/vectors.cuh"

namespace espalier::cuda {
namespace {

// Pairs are neighbours (kInterleaved), or half the rotary size apart.
template <class T, bool kInterleaved, bool kWhole>
struct Turned {
  static constexpr int kCount = kTaken<T, kWhole>, kSums = 1;
  kernels::RotaryRows args;
  int64_t columns;
  Divisor samples, head_size, parts;

  __device__ void operator()(int64_t row, int64_t column, float (*)[kCount]) const {
    const T* const x = static_cast<const T*>(args.x) + row * columns + column;
    T* const y = static_cast<T*>(args.y) + row * columns + column;
    const auto [head, in_head] = head_size.divide(column);
    const int64_t channel = in_head;
    const Pack<T, kCount> own = load_some<kWhole, kCount>(x, kCount);
    if (parts.divide(head).rest == args.queries + 1 || channel >= args.rotary_size) {
      store_pack<kWhole>(y, kCount, own);
      return;
    }
    const auto [place, sample] = samples.divide(row);
    const int64_t half = args.rotary_size / 2;
    const int64_t angles = args.positions[sample * args.length + place] * half;
    float values[kCount];
    if constexpr (kInterleaved && kWhole) {
      const auto cosine = load_some<true, kCount / 2>(args.cosine + angles + channel / 2, kCount / 2);
      const auto sine = load_some<true, kCount / 2>(args.sine + angles + channel / 2, kCount / 2);
      for (int i = 0; i < kCount; i += 2) {
        const float a = widen(own.of[i]), b = widen(own.of[i + 1]);
        turn(a, b, true, cosine.of[i / 2], sine.of[i / 2], values[i]);
        turn(b, a, false, cosine.of[i / 2], sine.of[i / 2], values[i + 1]);
      }
    } else {
      const int64_t pair = kInterleaved ? channel / 2 : channel < half ? channel : channel - half;
      const int64_t distance = kInterleaved ? 1 : half;
      const bool is_first = kInterleaved ? channel % 2 == 0 : channel < half;
      const Pack<T, kCount> other = load_some<kWhole, kCount>(is_first ? x + distance : x - distance, kCount);
      const auto cosine = load_some<kWhole, kCount>(args.cosine + angles + pair, kCount);
      const auto sine = load_some<kWhole, kCount>(args.sine + angles + pair, kCount);
      for (int i = 0; i < kCount; ++i)
        turn(widen(own.of[i]), widen(other.of[i]), is_first, cosine.of[i], sine.of[i], values[i]);
    }
    store_pack<kWhole>(y, kCount, values);
  }
  __device__ void turn(float own, float other, bool is_first, float cosine, float sine, float& value) const {
    const float turned = other * (sine * args.sine_sign);
    value = fmaf(own, cosine, is_first ? -turned : turned);
  }
};

}  // namespace

void rotate(Element type, const kernels::RotaryRows& args, bool interleaved, Stream stream) {
  const int64_t columns = args.groups * (args.queries + 2) * args.head_size, rows = args.num_samples * args.length;
  ESPALIER_CHECK(rows <= INT32_MAX && columns <= INT32_MAX, rows, " rows of ", columns, " elements");
  if (rows == 0 || columns == 0) return;
  with_element(type, [&](auto element) {
    using T = decltype(element);
    const bool whole = are_whole<T>(args.head_size, {args.x, args.y, args.cosine, args.sine}) &&
                       (interleaved ? args.rotary_size : args.rotary_size / 2) % kPack<T> == 0;
    with_bool(whole, [&](auto is_whole) {
      with_bool(interleaved, [&](auto is_interleaved) {
        const Turned<T, is_interleaved.value, is_whole.value> turned{
            args, columns, Divisor(args.num_samples), Divisor(args.head_size), Divisor(args.queries + 2)};
        launch_packs("rotate", turned, rows, columns, stream);
      });
    });
  });
}

}  // namespace espalier::cuda
