// What libespalier_cuda.so gives to the programs that load it.
//
// Types of C++ cross the border, so program and plugin must be made from the same headers: both carry
// ESPALIER_CUDA_INTERFACE, the version and a hash of those headers (cmake/cuda_plugin.cmake), and a plugin with another
// one is refused.
#pragma once

#include <cstdint>
#include <string>

#include "dist/device_backend.h"
#include "kernels/device_ops.h"

namespace espalier::cuda {

struct PluginTable {
  const kernels::DeviceOps* ops;
  // Makes a device the current one of this thread; names it: "NVIDIA H100 80GB HBM3 (sm_90, 79.1 GiB)".
  // UserError for one that the kernels were not compiled for, or a driver that is too old.
  std::string (*select_device)(int64_t device);
  // The same for no other GPU of any machine.
  std::string (*identity)(int64_t device);
  // Why there is no attention by cuDNN; nullptr: there is.
  const char* (*why_no_cudnn_attention)();
  // c10d's NCCL backend of a group. Called by all its ranks, each with its device selected.
  dist::MakeDeviceBackend make_nccl;
};

}  // namespace espalier::cuda

extern "C" {
// What the plugin was made from. Callable whatever it is.
const char* espalier_cuda_interface();
// The table; only if the interface is the program's own.
const espalier::cuda::PluginTable* espalier_cuda_table();
}
