// What all .cu files share: element types, reductions, and launches.
#pragma once

#ifdef __CUDACC__
#include "kernels/cuda/device.cuh"
#else
#include "tests/support/device_on_host.h"
#endif

#include "base/error.h"
#include "kernels/cuda/launch.h"

namespace espalier::cuda {

using Bf16 = __nv_bfloat16;
using Fp16 = __half;

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(Bf16 x) { return __bfloat162float(x); }
__device__ inline float widen(Fp16 x) { return __half2float(x); }
// To nearest even.
__device__ inline void store(float* to, float x) { *to = x; }
__device__ inline void store(Bf16* to, float x) { *to = __float2bfloat16_rn(x); }
__device__ inline void store(Fp16* to, float x) { *to = __float2half_rn(x); }

// body(T{}) for the type T of elements.
template <class Body>
void with_element(Element type, const Body& body) {
  switch (type) {
    case Element::kFloat: body(float{}); break;
    case Element::kBFloat16: body(Bf16{}); break;
    case Element::kHalf: body(Fp16{}); break;
  }
}

inline constexpr int kThreads = 256;
inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

inline unsigned num_blocks(int64_t count, int64_t per_block) {
  const int64_t blocks = (count + per_block - 1) / per_block;
  ESPALIER_CHECK(blocks > 0 && blocks <= INT32_MAX, blocks, " blocks");
  return static_cast<unsigned>(blocks);
}

// The same bits on every lane: each step adds the same two numbers on both sides.
template <class T>
__device__ inline T warp_sum(T value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

// Over a block of kThreads threads, on all of them. Every thread of the block calls it.
template <class T>
__device__ inline T block_sum(T value) {
  __shared__ T of_warp[kThreads / kWarp];
  value = warp_sum(value);
  __syncthreads();  // the sum before has been read
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  T total = 0;
  for (int warp = 0; warp < kThreads / kWarp; ++warp) total += of_warp[warp];
  return total;
}
__device__ inline float block_max(float value) {
  __shared__ float of_warp[kThreads / kWarp];
  value = warp_max(value);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  float largest = of_warp[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) largest = fmaxf(largest, of_warp[warp]);
  return largest;
}

// ---- elements

// body(element) for every element of [0, count).
template <class Body>
__global__ void for_each_element(Body body, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) body(i);
}
template <class Body>
void launch_for_each(const char* name, const Body& body, int64_t count, Stream stream) {
  launch(name, for_each_element<Body>, {num_blocks(count, kThreads), kThreads, 0, stream}, body, count);
}

// ---- column sums

inline constexpr int kSumRows = 8;  // rows that a block of kSumRows x kWarp threads adds at a time

// Term: __device__ void operator()(int64_t row, int64_t column, float* terms) const, kSums terms.
template <int kSums, class Term>
__global__ void add_rows_of_part(Term term, int64_t rows, int64_t columns, int64_t rows_per_part, float* partials) {
  __shared__ float of_row[kSumRows][kSums][kWarp];
  const int64_t column = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  const int64_t begin = int64_t{blockIdx.y} * rows_per_part, end = min(rows, begin + rows_per_part);
  float sums[kSums] = {};
  if (column < columns) {
    for (int64_t row = begin + threadIdx.y; row < end; row += kSumRows) {
      float terms[kSums];
      term(row, column, terms);
      for (int i = 0; i < kSums; ++i) sums[i] += terms[i];
    }
  }
  for (int i = 0; i < kSums; ++i) of_row[threadIdx.y][i][threadIdx.x] = sums[i];
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  for (int i = 0; i < kSums; ++i) {
    float total = 0;
    for (int row = 0; row < kSumRows; ++row) total += of_row[row][i][threadIdx.x];
    partials[(blockIdx.y * kSums + i) * columns + column] = total;
  }
}

// sums[i] = partials[0][i] + partials[1][i] + ... (rows.cu)
void add_parts(const float* partials, int64_t parts, int64_t width, float* sums, Stream stream);

template <int kSums, class Term>
void sum_over_rows(const Term& term, int64_t rows, int64_t columns, const ColumnSums& to, Stream stream) {
  const auto parts = static_cast<unsigned>(num_parts(rows));
  const dim3 grid(num_blocks(columns, kWarp), parts), block(kWarp, kSumRows);
  launch("add_rows_of_part", add_rows_of_part<kSums, Term>, {grid, block, 0, stream}, term, rows, columns,
         rows_of_part(rows), to.partials);
  add_parts(to.partials, parts, kSums * columns, to.sums, stream);
}

}  // namespace espalier::cuda
