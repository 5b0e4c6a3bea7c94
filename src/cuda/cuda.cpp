#include "cuda/cuda.h"

#include <dlfcn.h>

#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace espalier::cuda {
namespace {

constexpr const char* kDriver = "libcuda.so.1";
constexpr const char* kOnCpu = "--device cpu trains on the CPU.";

template <class Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

std::string last_dl_error() {
  const char* const error = ::dlerror();
  return error != nullptr ? error : "unknown error";
}

Placement on_gpu(int64_t local_rank, int64_t count) {
  if (local_rank >= count)
    throw UserError(
        concat("process ", local_rank, " of this machine needs a GPU of its own, and the driver shows ", count,
               ". Start at most ", count, " processes here, or give more in CUDA_VISIBLE_DEVICES. ", kOnCpu),
        ExitCode::kUsage);
  const PluginTable& plugin = load_plugin(plugin_path());
  const std::string name = plugin.select_device(local_rank);
  kernels::set_device_ops(at::kCUDA, plugin.ops);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
  return {.device = device, .description = concat(device.str(), ", ", name), .make_nccl = plugin.make_nccl};
}

}  // namespace

int64_t num_gpus() {
  void* const driver = ::dlopen(kDriver, RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return 0;
  auto* const initialize = symbol<int(unsigned)>(driver, "cuInit");
  auto* const count_devices = symbol<int(int*)>(driver, "cuDeviceGetCount");
  int count = 0;
  if (initialize == nullptr || count_devices == nullptr || initialize(0) != 0 || count_devices(&count) != 0) return 0;
  return count;
}

std::filesystem::path plugin_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libespalier_cuda.so";
}

const PluginTable& load_plugin(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path))
    throw UserError(concat("'", path.string(),
                           "' is not there: this build has no CUDA part. Build it where nvcc is in ",
                           "the path or in /usr/local/cuda/bin. ", kOnCpu));
  // libtorch_cuda registers its kernels with libtorch_cpu when it is loaded, and stays.
  void* const plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (plugin == nullptr)
    throw UserError(concat(
        "cannot load '", path.string(), "': ", last_dl_error(),
        "\nIt needs libtorch's CUDA part and NVIDIA's libraries: 'scripts/setup --cuda' installs them. ", kOnCpu));
  auto* const interface = symbol<const char*()>(plugin, "espalier_cuda_interface");
  auto* const table = symbol<const PluginTable*()>(plugin, "espalier_cuda_table");
  const std::string found = interface != nullptr ? interface() : "no version";
  if (found != ESPALIER_CUDA_INTERFACE || table == nullptr)
    throw UserError(concat("'", path.string(), "' is ", found, ", this program is ", ESPALIER_CUDA_INTERFACE,
                           ": they were not built together. Build both again. ", kOnCpu));
  return *table();
}

Placement place_process(plan::Device asked, int64_t local_rank) {
  if (asked == plan::Device::kCpu) return {.description = "the CPU, as --device cpu says"};
  const int64_t count = num_gpus();
  if (count > 0 && asked == plan::Device::kAuto && !std::filesystem::exists(plugin_path())) {
    log_warning("the driver shows ", count, " GPUs, but this build has no CUDA part: it was built without nvcc. ",
                "Training on the CPU.");
    return {.description = "the CPU: this build has no CUDA part"};
  }
  if (count > 0) return on_gpu(local_rank, count);
  if (asked == plan::Device::kCuda)
    throw UserError(concat("--device cuda: no GPU was found (", kDriver, " is missing or shows none). ", kOnCpu),
                    ExitCode::kUsage);
  return {.description = "the CPU: no GPU was found"};
}

}  // namespace espalier::cuda
