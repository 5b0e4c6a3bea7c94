// Rotary position embedding (kernels/rotary.h): one thread for each element of qkv.
#include "kernels/cuda/elements.cuh"

namespace espalier::cuda {
namespace {

template <class T, bool kInterleaved>
struct Turned {
  kernels::RotaryRows args;
  __device__ void operator()(int64_t i) const {
    const T* const x = static_cast<const T*>(args.x);
    T* const y = static_cast<T*>(args.y);
    const int64_t columns = args.groups * (args.queries + 2) * args.head_size, token = i / columns;
    const int64_t part = i % columns / args.head_size % (args.queries + 2), channel = i % args.head_size;
    const bool is_value = part == args.queries + 1;
    if (is_value || channel >= args.rotary_size) {
      y[i] = x[i];
      return;
    }
    const int64_t half = args.rotary_size / 2;
    const int64_t pair = kInterleaved ? channel / 2 : channel % half, distance = kInterleaved ? 1 : half;
    const bool is_first = kInterleaved ? channel % 2 == 0 : channel < half;
    const int64_t position = args.positions[token % args.num_samples * args.length + token / args.num_samples];
    const float cosine = args.cosine[position * half + pair], sine = args.sine[position * half + pair] * args.sine_sign;
    const float other = widen(x[is_first ? i + distance : i - distance]);
    store(y + i, fmaf(widen(x[i]), cosine, is_first ? -other * sine : other * sine));
  }
};

}  // namespace

void rotate(Element type, const kernels::RotaryRows& args, bool interleaved, Stream stream) {
  const int64_t columns = args.groups * (args.queries + 2) * args.head_size;
  const int64_t count = args.num_samples * args.length * columns;
  with_element(type, [&](auto element) {
    using T = decltype(element);
    interleaved ? launch_for_each("rotate_pairs", Turned<T, true>{args}, count, stream)
                : launch_for_each("rotate_halves", Turned<T, false>{args}, count, stream);
  });
}

}  // namespace espalier::cuda
