#include "cuda/cuda.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>

#include "base/error.h"
#include "base/log.h"

namespace espalier::cuda {
namespace {

constexpr const char* kDriver = "libcuda.so.1";
constexpr const char* kOnCpu = "--device cpu computes on the CPU.";

template <class Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

std::string last_dl_error() {
  const char* const error = ::dlerror();
  return error != nullptr ? error : "unknown error";
}

Placement on_gpu(int64_t local_rank, int64_t count) {
  const int64_t number = gpu_of_process(local_rank, count, std::getenv("CUDA_VISIBLE_DEVICES"));
  const PluginTable& plugin = load_plugin(plugin_path());
  const std::string name = plugin.select_device(number);
  kernels::set_device_ops(at::kCUDA, plugin.ops);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(number));
  return {.device = device,
          .description = concat(device.str(), ", ", name),
          .make_nccl = plugin.make_nccl,
          .why_no_cudnn_attention = plugin.why_no_cudnn_attention(),
          .gpu = plugin.identity(number)};
}

// The folder of the libtorch_cpu.so that this process runs with; empty where there is none.
std::filesystem::path libtorch_folder() {
  std::filesystem::path found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* result) {
        const std::filesystem::path path = library->dlpi_name;
        if (path.filename() != "libtorch_cpu.so") return 0;
        *static_cast<std::filesystem::path*>(result) = path.parent_path();
        return 1;
      },
      &found);
  return found;
}

// What the plugin needs, from next to libtorch_cpu, wherever the plugin was built; libtorch's own libraries know where
// NVIDIA's are. Returns why it could not be done.
std::string open_libtorch_cuda() {
  // Freed memory of other sizes is used again instead of asking for more. Read when the library is opened.
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr)
    ::setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", /*replace=*/0);
  for (const char* name : {"libc10_cuda.so", "libtorch_cuda.so"}) {
    const std::filesystem::path beside = libtorch_folder() / name;
    const std::string path = std::filesystem::exists(beside) ? beside.string() : name;
    if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE) == nullptr)
      return concat(last_dl_error(), " (looked for in ", libtorch_folder().string(), ")");
  }
  return "";
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
                           "' does not exist: this build has no CUDA part. 'scripts/setup --cuda' builds it. ",
                           kOnCpu));
  // libtorch_cuda registers its kernels with libtorch_cpu when it is loaded, and stays.
  const std::string trouble = open_libtorch_cuda();
  void* const plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (plugin == nullptr)
    throw UserError(concat(
        "cannot load '", path.string(), "': ", trouble.empty() ? last_dl_error() : trouble,
        "\nIt needs libtorch's CUDA part and NVIDIA's libraries: 'scripts/setup --cuda' installs them. ", kOnCpu));
  auto* const interface = symbol<const char*()>(plugin, "espalier_cuda_interface");
  auto* const table = symbol<const PluginTable*()>(plugin, "espalier_cuda_table");
  const std::string found = interface != nullptr ? interface() : "no version";
  if (found != ESPALIER_CUDA_INTERFACE || table == nullptr)
    throw UserError(concat("'", path.string(), "' is ", found, ", this program is ", ESPALIER_CUDA_INTERFACE,
                           ": they were not built together. Build both again. ", kOnCpu));
  return *table();
}

int64_t gpu_of_process(int64_t local_rank, int64_t count, const char* visible) {
  if (local_rank < count) return local_rank;
  if (count == 1 && visible != nullptr) return 0;
  throw UserError(
      concat("process ", local_rank, " of this machine needs a GPU of its own, and the driver shows ", count,
             ". Start at most ", count, " processes here, or give more in CUDA_VISIBLE_DEVICES. ", kOnCpu),
      ExitCode::kUsage);
}

UserError out_of_memory(const std::string& said, Purpose purpose) {
  constexpr const char* kOfTraining =
      "What makes a run smaller: --recompute-activations, a smaller --micro-batch-size, --zero-stage 1 or more, "
      "--tensor-model-parallel-size and --pipeline-model-parallel-size over more GPUs. 'espalier plan gpt' with the "
      "same options shows what takes how much.";
  constexpr const char* kOfUse =
      "What takes less of it: --tensor-model-parallel-size over more GPUs, fewer texts at once (--batch-size of "
      "generate, --kv-cache-mib and --max-running of serve), shorter ones. --device cpu computes in the memory of the "
      "machine.";
  return UserError(concat("the memory of the GPU is full: ", said.substr(0, said.find('\n')), "\n",
                          purpose == Purpose::kTraining ? kOfTraining : kOfUse));
}

void check_attention_backend(spec::AttentionBackend asked, const Placement& placement) {
  if (asked == spec::AttentionBackend::kCudnn && placement.why_no_cudnn_attention != nullptr)
    throw UserError(
        concat("--attention-backend cudnn: ", placement.why_no_cudnn_attention, ". Use --attention-backend flash."),
        ExitCode::kUsage);
}

Placement place_process(config::Device asked, int64_t local_rank) {
  if (asked == config::Device::kCpu) return {.description = "the CPU, as --device cpu says"};
  const int64_t count = num_gpus();
  if (count > 0 && asked == config::Device::kAuto && !std::filesystem::exists(plugin_path())) {
    log_warning("the driver shows ", count, " GPUs, but this build has no CUDA part ('", plugin_path().string(),
                "' does not exist): 'scripts/setup --cuda' builds it. Computing on the CPU.");
    return {.description = "the CPU: this build has no CUDA part"};
  }
  if (count > 0) return on_gpu(local_rank, count);
  if (asked == config::Device::kCuda)
    throw UserError(concat("--device cuda: no GPU was found (", kDriver, " is missing or shows none). ", kOnCpu),
                    ExitCode::kUsage);
  return {.description = "the CPU: no GPU was found"};
}

}  // namespace espalier::cuda
