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

struct Launch {
  dim3 grid, block;
  int shared_bytes;
  Stream stream;
};

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const Launch& how, const Arguments&... arguments) {
  constexpr int kWithoutAsking = 48 << 10;
  if (how.shared_bytes > kWithoutAsking) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, how.shared_bytes);
    ESPALIER_CHECK(error == cudaSuccess, name, ": ", how.shared_bytes,
                   " bytes of shared memory: ", cudaGetErrorString(error));
  }
  kernel<<<how.grid, how.block, how.shared_bytes, how.stream>>>(arguments...);
  const cudaError_t error = cudaGetLastError();
  ESPALIER_CHECK(error == cudaSuccess, name, ": ", cudaGetErrorString(error));
}

}  // namespace espalier::cuda
