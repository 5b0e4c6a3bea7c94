// Bias and activation (kernels/activation.h): one thread for each element of the result.
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/elements.cuh"

namespace espalier::cuda {
namespace {

using kernels::ActivationBackward;
using kernels::ActivationForward;
using kernels::ActivationFunction;

// x + bias, rows of `width`.
template <class T>
struct Biased {
  const T *x, *bias;
  int64_t width;
  __device__ float at(int64_t row, int64_t column) const {
    const float value = widen(x[row * width + column]);
    return bias == nullptr ? value : value + widen(bias[column]);
  }
};

template <class T>
Biased<T> biased(const void* x, const void* bias, int64_t width) {
  return {static_cast<const T*>(x), static_cast<const T*>(bias), width};
}

template <class T, class F, bool kGated>
struct Value {
  Biased<T> x;
  T* y;
  int64_t columns;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / columns, column = i % columns;
    float value = F::value(x.at(row, column));
    if (kGated) value *= x.at(row, columns + column);
    store(y + i, value);
  }
};

// Of element (row, column) of dx. Gated: da = dy b F'(a), db = dy F(a).
template <class T, class F, bool kGated>
struct Gradient {
  Biased<T> x;
  const T* dy;
  T* dx;
  int64_t columns;
  __device__ float at(int64_t row, int64_t column) const {
    const int64_t of_result = column < columns ? column : column - columns;
    const float up = widen(dy[row * columns + of_result]), a = x.at(row, of_result);
    if (!kGated) return up * F::derivative(a);
    return column < columns ? up * x.at(row, columns + column) * F::derivative(a) : up * F::value(a);
  }
  __device__ void operator()(int64_t i) const { store(dx + i, at(i / x.width, i % x.width)); }
  __device__ void operator()(int64_t row, int64_t column, float* terms) const { terms[0] = at(row, column); }
};

template <class T, class F, bool kGated>
void forward(const ActivationForward& args, int64_t rows, Stream stream) {
  const int64_t width = (kGated ? 2 : 1) * args.columns;
  const Value<T, F, kGated> value{biased<T>(args.x, args.bias, width), static_cast<T*>(args.y), args.columns};
  launch_for_each("activation_forward", value, rows * args.columns, stream);
}

template <class T, class F, bool kGated>
void backward(const ActivationBackward& args, int64_t rows, const ColumnSums* sums, Stream stream) {
  const int64_t width = (kGated ? 2 : 1) * args.columns;
  const Gradient<T, F, kGated> gradient{biased<T>(args.x, args.bias, width), static_cast<const T*>(args.dy),
                                        static_cast<T*>(args.dx), args.columns};
  launch_for_each("activation_backward", gradient, rows * width, stream);
  if (sums != nullptr) sum_over_rows<1>(gradient, rows, width, *sums, stream);
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
