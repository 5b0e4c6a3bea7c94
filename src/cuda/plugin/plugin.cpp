// The two functions that libespalier_cuda.so exports.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>

#include "base/error.h"
#include "base/format.h"
#include "cuda/plugin/nccl_backend.h"
#include "cuda/plugin_table.h"
#include "kernels/cuda/ops.h"

namespace espalier::cuda {
namespace {

std::string select_device(int64_t device) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
  return concat(properties.name, " (sm_", properties.major, properties.minor, ", ",
                format_bytes(static_cast<double>(properties.totalGlobalMem)), ")");
}

}  // namespace
}  // namespace espalier::cuda

extern "C" __attribute__((visibility("default"))) const char* espalier_cuda_interface() {
  return ESPALIER_CUDA_INTERFACE;
}

extern "C" __attribute__((visibility("default"))) const espalier::cuda::PluginTable* espalier_cuda_table() {
  using namespace espalier::cuda;
  static const PluginTable table{.ops = &ops(), .select_device = select_device, .make_nccl = make_nccl};
  return &table;
}
