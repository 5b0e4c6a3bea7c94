// The gradient of bias and activation (kernels/activation.h), by packs of the result (vectors.cuh).
#include "kernels/cuda/activation.cuh"

namespace espalier::cuda {
namespace {

using kernels::ActivationBackward;

// da = dy F'(a); gated: da = dy b F'(a), db = dy F(a).
template <class T, class F, bool kGated, bool kWhole>
struct Gradient {
  static constexpr int kCount = kTaken<T, kWhole>, kSums = kGated ? 2 : 1;
  ActivationBackward args;
  __device__ void operator()(int64_t row, int64_t column, float (*sums)[kCount]) const {
    const int64_t columns = args.columns, left = columns - column, at = row * columns * (kGated ? 2 : 1) + column;
    const auto dy = load_some<kWhole, kTaken<T, kWhole>>(static_cast<const T*>(args.dy) + row * columns + column, left);
    T* const dx = static_cast<T*>(args.dx) + at;
    float a[kCount], b[kCount];
    load_biased<T, kWhole>(args.x, args.bias, at, column, left, a);
    if constexpr (kGated) load_biased<T, kWhole>(args.x, args.bias, at + columns, columns + column, left, b);
    for (int i = 0; i < kCount; ++i) {
      const float up = widen(dy.of[i]);
      const float da = kGated ? up * b[i] * F::derivative(a[i]) : up * F::derivative(a[i]);
      if constexpr (kGated) {
        b[i] = up * F::value(a[i]);
        sums[1][i] += b[i];
      }
      a[i] = da;
      sums[0][i] += da;
    }
    store_pack<kWhole>(dx, left, a);
    if constexpr (kGated) store_pack<kWhole>(dx + columns, left, b);
  }
};

template <class T, class F, bool kGated>
void backward(const ActivationBackward& args, int64_t rows, const ColumnSums* sums, Stream stream) {
  with_bool(are_whole<T>(args.columns, {args.x, args.bias, args.dy, args.dx}), [&](auto whole) {
    launch_packs("activation_backward", Gradient<T, F, kGated, whole.value>{args}, rows, args.columns, sums, stream);
  });
}

}  // namespace

void activation_backward(Element type, const Activation& kind, const ActivationBackward& args, int64_t rows,
                         const ColumnSums* sums, Stream stream) {
  with_element(type, [&](auto element) {
    with_function(kind.function, [&](auto function) {
      using T = decltype(element);
      using F = decltype(function);
      kind.gated ? backward<T, F, true>(args, rows, sums, stream) : backward<T, F, false>(args, rows, sums, stream);
    });
  });
}

}  // namespace espalier::cuda
