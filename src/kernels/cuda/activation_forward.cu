// Bias and activation (kernels/activation.h), by packs of the result (vectors.cuh).
#include "kernels/cuda/activation.cuh"

namespace espalier::cuda {
namespace {

using kernels::ActivationForward;

// y = F(a), a = x + bias; gated: F(a) b, where rows of x are those of a, then those of b.
template <class T, class F, bool kGated, bool kWhole>
struct Value {
  static constexpr int kCount = kTaken<T, kWhole>, kSums = 1;
  ActivationForward args;
  __device__ void operator()(int64_t row, int64_t column, float (*)[kCount]) const {
    const int64_t columns = args.columns, left = columns - column, at = row * columns * (kGated ? 2 : 1) + column;
    float a[kCount], b[kCount];
    load_biased<T, kWhole>(args.x, args.bias, at, column, left, a);
    if constexpr (kGated) load_biased<T, kWhole>(args.x, args.bias, at + columns, columns + column, left, b);
    for (int i = 0; i < kCount; ++i) a[i] = kGated ? F::value(a[i]) * b[i] : F::value(a[i]);
    store_pack<kWhole>(static_cast<T*>(args.y) + row * columns + column, left, a);
  }
};

template <class T, class F, bool kGated>
void forward(const ActivationForward& args, int64_t rows, Stream stream) {
  with_bool(are_whole<T>(args.columns, {args.x, args.bias, args.y}), [&](auto whole) {
    launch_packs("activation_forward", Value<T, F, kGated, whole.value>{args}, rows, args.columns, stream);
  });
}

}  // namespace

void activation_forward(Element type, const Activation& kind, const ActivationForward& args, int64_t rows,
                        Stream stream) {
  with_element(type, [&](auto element) {
    with_function(kind.function, [&](auto function) {
      using T = decltype(element);
      using F = decltype(function);
      kind.gated ? forward<T, F, true>(args, rows, stream) : forward<T, F, false>(args, rows, stream);
    });
  });
}

}  // namespace espalier::cuda
