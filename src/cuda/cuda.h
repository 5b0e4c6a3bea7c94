// Computing on a GPU: finds it, loads libespalier_cuda.so, and makes it compute for tensors on CUDA devices.
//
// The plugin is loaded only where there is a GPU, so that one build serves machines with and without.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"
#include "config/run_config.h"
#include "cuda/plugin_table.h"

namespace espalier::cuda {

// How many GPUs the driver shows to this process; 0 without a driver.
int64_t num_gpus();

// Where the plugin is: next to the program.
std::filesystem::path plugin_path();

// Loads a plugin; its memory stays. A UserError names what is missing: the file, libtorch's CUDA part, NVIDIA's
// libraries, or the same version of the program.
const PluginTable& load_plugin(const std::filesystem::path& path);

// Which GPU process `local_rank` of the machine takes of the `count` that it sees. `visible`: CUDA_VISIBLE_DEVICES, or
// null. Each takes that of its number; where every process was given one of its own, that one.
int64_t gpu_of_process(int64_t local_rank, int64_t count, const char* visible);

// How a full GPU is reported: what libtorch said, and what needs less.
enum class Purpose { kTraining, kUse };
UserError out_of_memory(const std::string& said, Purpose purpose);

// What a process computes on.
struct Placement {
  at::Device device{at::kCPU};
  std::string description;  // for the log: "cuda:0, NVIDIA H100 80GB HBM3 (sm_90, 79.1 GiB)", "CPU: no GPU was found"
  dist::MakeDeviceBackend make_nccl = nullptr;  // on a GPU
  // Why attention cannot be cuDNN's; nullptr: it can.
  const char* why_no_cudnn_attention = "no GPU was found";
  std::string gpu;  // which one, of all GPUs of all machines; empty on the CPU
};

// Follows --device for this process, which is number `local_rank` of those on the machine: each takes the GPU of its
// number. On a GPU the plugin is loaded and its ops are set (kernels/device_ops.h). kAuto takes a GPU where there is
// one and the program was built for it; what then fails is an error, never a silent CPU run.
Placement place_process(config::Device asked, int64_t local_rank);

// A UserError where the run wants kernels that the place has not.
void check_attention_backend(spec::AttentionBackend asked, const Placement& placement);

}  // namespace espalier::cuda
