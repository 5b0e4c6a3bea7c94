// Bias and activation (kernels/activation.h): by packs of the result (vectors.cuh).
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/vectors.cuh"

namespace espalier::cuda {
namespace {

using kernels::ActivationBackward;
using kernels::ActivationForward;
using kernels::ActivationFunction;

template <class T, bool kWhole>
__device__ void load_biased(const void* x, const void* bias, int64_t at, int64_t column, int64_t left,
                            float (&values)[kTaken<T, kWhole>]) {
  const auto pack = load_some<kWhole, kTaken<T, kWhole>>(static_cast<const T*>(x) + at, left);
  for (int i = 0; i < kTaken<T, kWhole>; ++i) values[i] = widen(pack.of[i]);
  if (bias == nullptr) return;
  const auto added = load_some<kWhole, kTaken<T, kWhole>>(static_cast<const T*>(bias) + column, left);
  for (int i = 0; i < kTaken<T, kWhole>; ++i) values[i] += widen(added.of[i]);
}

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
void forward(const ActivationForward& args, int64_t rows, Stream stream) {
  with_bool(are_whole<T>(args.columns, {args.x, args.bias, args.y}), [&](auto whole) {
    launch_packs("activation_forward", Value<T, F, kGated, whole.value>{args}, rows, args.columns, stream);
  });
}

template <class T, class F, bool kGated>
void backward(const ActivationBackward& args, int64_t rows, const ColumnSums* sums, Stream stream) {
  with_bool(are_whole<T>(args.columns, {args.x, args.bias, args.dy, args.dx}), [&](auto whole) {
    launch_packs("activation_backward", Gradient<T, F, kGated, whole.value>{args}, rows, args.columns, sums, stream);
  });
}

// body(F{}) for the function F.
template <class Body>
void with_function(ActivationFunction function, const Body& body) {
  switch (function) {
    case ActivationFunction::kGeluTanh: return body(GeluTanh{});
    case ActivationFunction::kGeluErf: return body(GeluErf{});
    case ActivationFunction::kRelu: return body(Relu{});
    case ActivationFunction::kSquaredRelu: return body(SquaredRelu{});
    case ActivationFunction::kSilu: return body(Silu{});
    case ActivationFunction::kIdentity: return body(Identity{});
  }
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
