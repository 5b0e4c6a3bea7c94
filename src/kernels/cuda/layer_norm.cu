// Layer norm (kernels/layer_norm.h): one block for each row, which it reads once for the mean, once for the deviations
// (their squares do not cancel where the mean is large) and once for the result.
#include "kernels/cuda/elements.cuh"

namespace espalier::cuda {
namespace {

template <class T>
__global__ void forward_kernel(kernels::LayerNormForward args) {
  const int64_t row = blockIdx.x, columns = args.columns;
  const T* const x = static_cast<const T*>(args.x) + row * columns;
  const T* const weight = static_cast<const T*>(args.weight);
  const T* const bias = static_cast<const T*>(args.bias);
  T* const y = static_cast<T*>(args.y) + row * columns;
  float total = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) total += widen(x[i]);
  const float mean = block_sum(total) / static_cast<float>(columns);
  float squares = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const float deviation = widen(x[i]) - mean;
    squares = fmaf(deviation, deviation, squares);
  }
  const float rstd = 1 / sqrtf(block_sum(squares) / static_cast<float>(columns) + args.epsilon);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads)
    store(y + i, fmaf((widen(x[i]) - mean) * rstd, widen(weight[i]), widen(bias[i])));
  if (threadIdx.x > 0) return;
  args.mean[row] = mean;
  args.rstd[row] = rstd;
}

// dx = rstd (g - mean(g) - n mean(g n)), n the normalized x, g = dy * weight.
template <class T>
__global__ void backward_kernel(kernels::LayerNormBackward args) {
  const int64_t row = blockIdx.x, columns = args.columns;
  const T* const x = static_cast<const T*>(args.x) + row * columns;
  const T* const dy = static_cast<const T*>(args.dy) + row * columns;
  const T* const weight = static_cast<const T*>(args.weight);
  T* const dx = static_cast<T*>(args.dx) + row * columns;
  const float mean = args.mean[row], rstd = args.rstd[row];
  float sum_g = 0, sum_gn = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const float g = widen(dy[i]) * widen(weight[i]);
    sum_g += g;
    sum_gn = fmaf(g, (widen(x[i]) - mean) * rstd, sum_gn);
  }
  const float mean_g = block_sum(sum_g) / static_cast<float>(columns);
  const float mean_gn = block_sum(sum_gn) / static_cast<float>(columns);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const float normalized = (widen(x[i]) - mean) * rstd;
    store(dx + i, (widen(dy[i]) * widen(weight[i]) - mean_g - normalized * mean_gn) * rstd);
  }
}

template <class T>
struct ParameterTerms {
  kernels::LayerNormBackward args;
  __device__ void operator()(int64_t row, int64_t column, float* terms) const {
    const int64_t i = row * args.columns + column;
    const float up = widen(static_cast<const T*>(args.dy)[i]);
    terms[0] = up * ((widen(static_cast<const T*>(args.x)[i]) - args.mean[row]) * args.rstd[row]);
    terms[1] = up;
  }
};

}  // namespace

void layer_norm_forward(Element type, const kernels::LayerNormForward& args, int64_t rows, Stream stream) {
  with_element(type, [&](auto element) {
    launch("layer_norm_forward", forward_kernel<decltype(element)>, {num_blocks(rows, 1), kThreads, 0, stream}, args);
  });
}

void layer_norm_backward(Element type, const kernels::LayerNormBackward& args, int64_t rows, const ColumnSums& to,
                         Stream stream) {
  with_element(type, [&](auto element) {
    using T = decltype(element);
    launch("layer_norm_backward", backward_kernel<T>, {num_blocks(rows, 1), kThreads, 0, stream}, args);
    sum_over_rows<2>(ParameterTerms<T>{args}, rows, args.columns, to, stream);
  });
}

}  // namespace espalier::cuda
