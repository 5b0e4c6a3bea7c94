// The two functions that libespalier_cuda.so exports.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include "base/error.h"
#include "base/format.h"
#include "cuda/plugin/nccl_backend.h"
#include "cuda/plugin_table.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sdpa.h"

namespace espalier::cuda {
namespace {

// Below it there is neither a kernel of ours (cmake/cuda_plugin.cmake) nor bf16.
constexpr int kOldestMajor = 8;

std::string select_device(int64_t device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  try {
    c10::cuda::set_device(index, /*force=*/true);  // makes its context, which cuBLAS would otherwise warn about
    // For those who ask for it by the type of the device (tensor/device_memory.h).
    c10::SetAllocator(at::kCUDA, c10::cuda::CUDACachingAllocator::get());
    const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(index);
    const std::string name = concat(properties.name, " (sm_", properties.major, properties.minor, ", ",
                                    format_bytes(static_cast<double>(properties.totalGlobalMem)), ")");
    if (properties.major < kOldestMajor)
      throw UserError(concat("GPU ", device, " is ", name, ", and the kernels need sm_80 (A100, RTX 30) or newer. ",
                             "--device cpu computes on the CPU."),
                      ExitCode::kUsage);
    return name;
  } catch (const c10::Error& error) {
    throw UserError(concat("GPU ", device, " cannot be used: CUDA 13 needs a driver of version 580 or newer ",
                           "(nvidia-smi shows it), and a GPU that no other process keeps to itself.\n",
                           error.what_without_backtrace()),
                    ExitCode::kUsage);
  }
}

std::string identity(int64_t device) {
  const cudaUUID_t& id = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device))->uuid;
  return std::string(id.bytes, sizeof id.bytes);
}

}  // namespace
}  // namespace espalier::cuda

extern "C" __attribute__((visibility("default"))) const char* espalier_cuda_interface() {
  return ESPALIER_CUDA_INTERFACE;
}

extern "C" __attribute__((visibility("default"))) const espalier::cuda::PluginTable* espalier_cuda_table() {
  using namespace espalier::cuda;
  static const PluginTable table{.ops = &ops(),
                                 .select_device = select_device,
                                 .identity = identity,
                                 .why_no_cudnn_attention = why_no_sdpa,
                                 .make_nccl = make_nccl};
  return &table;
}
