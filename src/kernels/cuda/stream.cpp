#include "kernels/cuda/stream.h"

#include <c10/cuda/CUDAStream.h>

namespace espalier::cuda {

Stream current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
at::Device current_device() { return {at::kCUDA, c10::cuda::current_device()}; }

}  // namespace espalier::cuda
