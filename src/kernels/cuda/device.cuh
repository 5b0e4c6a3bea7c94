// What nvcc gives to the kernels, and the one place where they are launched. Its counterpart for tests without a GPU is
// tests/support/device_on_host.h.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "base/error.h"
#include "kernels/cuda/launch.h"

namespace espalier::cuda {

// The memory of a block whose size the launch gives.
inline constexpr int kSharedAlignment = 1024;
__device__ inline float* shared_memory() {
  extern __shared__ __align__(1024) float values[];
  return values;
}

// kBytes (16, 8, 4) at an address that is a multiple of them, in one access.
template <int kBytes>
struct Word;
template <>
struct Word<16> {
  using Type = uint4;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<4> {
  using Type = unsigned;
};
template <int kBytes>
__device__ inline void load_bytes(void* registers, const void* from) {
  __builtin_assume(__isGlobal(from));  // also where the pointer itself comes from memory
  const auto word = *static_cast<const typename Word<kBytes>::Type*>(from);
  memcpy(registers, &word, kBytes);
}
// By name: of an assignment nvcc makes four stores where it does not see that they may be one.
template <int kBytes>
__device__ inline void store_bytes(void* to, const void* registers) {
  typename Word<kBytes>::Type word;
  memcpy(&word, registers, kBytes);
  __stwb(static_cast<typename Word<kBytes>::Type*>(to), word);
}

// Makes the compiler compute anew what follows from 16 bytes of registers, instead of keeping it in more of them.
__device__ inline void compute_anew(void* registers) {
  uint4 word;
  memcpy(&word, registers, sizeof word);
  asm volatile("" : "+r"(word.x), "+r"(word.y), "+r"(word.z), "+r"(word.w));
  memcpy(registers, &word, sizeof word);
}

struct Launch {
  dim3 grid, block;
  int shared_bytes;
  Stream stream;
};

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const Launch& how, const Arguments&... arguments) {
  constexpr int kWithoutAsking = 40 << 10;  // of 48 KiB, less what a kernel has by itself
  if (how.shared_bytes > kWithoutAsking) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, how.shared_bytes);
    ESPALIER_CHECK(error == cudaSuccess, name, ": ", how.shared_bytes,
                   " bytes of shared memory: ", cudaGetErrorString(error));
  }
  kernel<<<how.grid, how.block, how.shared_bytes, how.stream>>>(arguments...);
  const cudaError_t error = cudaGetLastError();
  ESPALIER_CHECK(error == cudaSuccess, name, " (or one before): ", cudaGetErrorString(error));
}

}  // namespace espalier::cuda
