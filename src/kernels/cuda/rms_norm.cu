// RMS norms of rows (kernels/rms_norm.h), one block for each, and of heads (kernels/qk_norm.h), one warp for each.
#include "kernels/cuda/elements.cuh"

namespace espalier::cuda {
namespace {

using kernels::QkNormBackward;
using kernels::QkNormForward;
using kernels::RmsNormBackward;
using kernels::RmsNormForward;

template <class T>
__global__ void rms_forward_kernel(RmsNormForward args) {
  const int64_t row = blockIdx.x, columns = args.columns;
  const T* const x = static_cast<const T*>(args.x) + row * columns;
  const T* const weight = static_cast<const T*>(args.weight);
  T* const y = static_cast<T*>(args.y) + row * columns;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) squares = fmaf(widen(x[i]), widen(x[i]), squares);
  const float rstd = 1 / sqrtf(block_sum(squares) / static_cast<float>(columns) + args.epsilon);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) store(y + i, widen(x[i]) * rstd * widen(weight[i]));
  if (threadIdx.x == 0) args.rstd[row] = rstd;
}

// dx = rstd (g - n mean(g n)), n the normalized x, g = dy * weight.
template <class T>
__global__ void rms_backward_kernel(RmsNormBackward args) {
  const int64_t row = blockIdx.x, columns = args.columns;
  const T* const x = static_cast<const T*>(args.x) + row * columns;
  const T* const dy = static_cast<const T*>(args.dy) + row * columns;
  const T* const weight = static_cast<const T*>(args.weight);
  T* const dx = static_cast<T*>(args.dx) + row * columns;
  const float rstd = args.rstd[row];
  float sum_gn = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads)
    sum_gn = fmaf(widen(dy[i]) * widen(weight[i]), widen(x[i]) * rstd, sum_gn);
  const float mean_gn = block_sum(sum_gn) / static_cast<float>(columns);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads)
    store(dx + i, (widen(dy[i]) * widen(weight[i]) - widen(x[i]) * rstd * mean_gn) * rstd);
}

template <class T>
struct WeightTerms {
  RmsNormBackward args;
  __device__ void operator()(int64_t row, int64_t column, float* terms) const {
    const int64_t i = row * args.columns + column;
    terms[0] = widen(static_cast<const T*>(args.dy)[i]) * (widen(static_cast<const T*>(args.x)[i]) * args.rstd[row]);
  }
};

// Which head a warp has: of a row its query heads, its key head, its value head.
struct HeadPlace {
  int64_t row, head, first;  // element
  bool is_query, is_value;
};
__device__ HeadPlace head_of_warp(int64_t queries, int64_t head_size) {
  const int64_t number = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const int64_t row = number / (queries + 2), head = number % (queries + 2);
  return {row, head, number * head_size, head < queries, head == queries + 1};
}

template <class T>
__global__ void heads_forward_kernel(QkNormForward args, int64_t rows) {
  const HeadPlace at = head_of_warp(args.queries, args.head_size);
  if (at.row >= rows) return;
  const int64_t lane = threadIdx.x % kWarp;
  const T* const x = static_cast<const T*>(args.x) + at.first;
  T* const y = static_cast<T*>(args.y) + at.first;
  const T* const weight = static_cast<const T*>(at.is_query ? args.query_weight : args.key_weight);
  if (at.is_value) {
    for (int64_t i = lane; i < args.head_size; i += kWarp) y[i] = x[i];
    return;
  }
  float squares = 0;
  for (int64_t i = lane; i < args.head_size; i += kWarp) squares = fmaf(widen(x[i]), widen(x[i]), squares);
  const float rstd = 1 / sqrtf(warp_sum(squares) / static_cast<float>(args.head_size) + args.epsilon);
  for (int64_t i = lane; i < args.head_size; i += kWarp) store(y + i, widen(x[i]) * rstd * widen(weight[i]));
  if (lane == 0) args.rstd[at.row * (args.queries + 1) + at.head] = rstd;
}

template <class T>
__global__ void heads_backward_kernel(QkNormBackward args, int64_t rows) {
  const HeadPlace at = head_of_warp(args.queries, args.head_size);
  if (at.row >= rows) return;
  const int64_t lane = threadIdx.x % kWarp;
  const T* const x = static_cast<const T*>(args.x) + at.first;
  const T* const dy = static_cast<const T*>(args.dy) + at.first;
  T* const dx = static_cast<T*>(args.dx) + at.first;
  const T* const weight = static_cast<const T*>(at.is_query ? args.query_weight : args.key_weight);
  if (at.is_value) {
    for (int64_t i = lane; i < args.head_size; i += kWarp) dx[i] = dy[i];
    return;
  }
  const float rstd = args.rstd[at.row * (args.queries + 1) + at.head];
  float sum_gn = 0;
  for (int64_t i = lane; i < args.head_size; i += kWarp)
    sum_gn = fmaf(widen(dy[i]) * widen(weight[i]), widen(x[i]) * rstd, sum_gn);
  const float mean_gn = warp_sum(sum_gn) / static_cast<float>(args.head_size);
  for (int64_t i = lane; i < args.head_size; i += kWarp)
    store(dx + i, (widen(dy[i]) * widen(weight[i]) - widen(x[i]) * rstd * mean_gn) * rstd);
}

// Of the heads first .. first + count - 1 of every row, row by row.
template <class T>
struct HeadTerms {
  QkNormBackward args;
  int64_t first, count;
  __device__ void operator()(int64_t number, int64_t column, float* terms) const {
    const int64_t row = number / count, head = first + number % count;
    const int64_t i = (row * (args.queries + 2) + head) * args.head_size + column;
    const float rstd = args.rstd[row * (args.queries + 1) + head];
    terms[0] = widen(static_cast<const T*>(args.dy)[i]) * (widen(static_cast<const T*>(args.x)[i]) * rstd);
  }
};

}  // namespace

void rms_norm_forward(Element type, const RmsNormForward& args, int64_t rows, Stream stream) {
  with_element(type, [&](auto element) {
    launch("rms_norm_forward", rms_forward_kernel<decltype(element)>, {num_blocks(rows, 1), kThreads, 0, stream}, args);
  });
}

void rms_norm_backward(Element type, const RmsNormBackward& args, int64_t rows, const ColumnSums& to, Stream stream) {
  with_element(type, [&](auto element) {
    using T = decltype(element);
    launch("rms_norm_backward", rms_backward_kernel<T>, {num_blocks(rows, 1), kThreads, 0, stream}, args);
    sum_over_rows<1>(WeightTerms<T>{args}, rows, args.columns, to, stream);
  });
}

void qk_norm_forward(Element type, const QkNormForward& args, int64_t rows, Stream stream) {
  const unsigned blocks = num_blocks(rows * (args.queries + 2), kThreads / kWarp);
  with_element(type, [&](auto element) {
    launch("qk_norm_forward", heads_forward_kernel<decltype(element)>, {blocks, kThreads, 0, stream}, args, rows);
  });
}

void qk_norm_backward(Element type, const QkNormBackward& args, int64_t rows, const ColumnSums& to, Stream stream) {
  const unsigned blocks = num_blocks(rows * (args.queries + 2), kThreads / kWarp);
  with_element(type, [&](auto element) {
    using T = decltype(element);
    launch("qk_norm_backward", heads_backward_kernel<T>, {blocks, kThreads, 0, stream}, args, rows);
    sum_over_rows<1>(HeadTerms<T>{args, 0, args.queries}, rows * args.queries, args.head_size, to, stream);
    sum_over_rows<1>(HeadTerms<T>{args, args.queries, 1}, rows, args.head_size, {to.partials, to.sums + args.head_size},
                     stream);
  });
}

}  // namespace espalier::cuda
