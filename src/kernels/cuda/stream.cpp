#include "kernels/cuda/stream.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAStream.h>

namespace espalier::cuda {

Stream current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
at::Device current_device() { return {at::kCUDA, c10::cuda::current_device()}; }
int64_t device_bytes() { return static_cast<int64_t>(at::cuda::getCurrentDeviceProperties()->totalGlobalMem); }
bool multiplies_fp8() {
  const cudaDeviceProp& device = *at::cuda::getCurrentDeviceProperties();
  return device.major > 8 || (device.major == 8 && device.minor >= 9);
}

at::Tensor pinned_bytes(int64_t count) {
  return at::empty({count}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
}

}  // namespace espalier::cuda
