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

// Over the warp, or `lanes` (a power of two) that are neighbours in it. The same bits on each of them: each step adds
// the same two numbers on both sides. All lanes of the warp call it.
template <class T>
__device__ inline T warp_sum(T value, int lanes = kWarp) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
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

// sums[i] = the sum of partials[part][i] over all parts (rows.cu)
void add_parts(const float* partials, int64_t parts, int64_t width, float* sums, Stream stream);

}  // namespace espalier::cuda
