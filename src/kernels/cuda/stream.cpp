#include "kernels/cuda/stream.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

namespace espalier::cuda {

Stream current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
at::Device current_device() { return {at::kCUDA, c10::cuda::current_device()}; }

at::Tensor pinned_bytes(int64_t count) {
  return at::empty({count}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
}

}  // namespace espalier::cuda
