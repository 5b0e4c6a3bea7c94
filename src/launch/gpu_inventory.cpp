#include "launch/gpu_inventory.h"

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/format.h"

namespace espalier::launch {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";
constexpr int kSuccess = 0;
constexpr size_t kTextSize = 96;  // NVML's names and versions are shorter (NVML_DEVICE_NAME_V2_BUFFER_SIZE)

using Device = void*;
struct Memory {  // nvmlMemory_t
  unsigned long long total = 0, free = 0, used = 0;
};

// The functions that are used, as nvml.h declares them.
struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*driver)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, Nvml& nvml) {
  return find(library, "nvmlInit_v2", nvml.init) && find(library, "nvmlShutdown", nvml.shutdown) &&
         find(library, "nvmlErrorString", nvml.error_text) &&
         find(library, "nvmlSystemGetDriverVersion", nvml.driver) &&
         find(library, "nvmlDeviceGetCount_v2", nvml.count) &&
         find(library, "nvmlDeviceGetHandleByIndex_v2", nvml.device) && find(library, "nvmlDeviceGetName", nvml.name) &&
         find(library, "nvmlDeviceGetMemoryInfo", nvml.memory);
}

// Of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024": the word that is digits
// and dots.
std::string kernel_driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  for (const std::string& word : split_blanks(line))
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  return "";
}

// /dev/nvidia0, /dev/nvidia1, ...
int num_device_files() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/dev"), closedir);
  int count = 0;
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) {
    const std::string name = entry->d_name;
    count +=
        name.starts_with("nvidia") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos;
  }
  return count;
}

std::string failed(const Nvml& nvml, const char* function, int code) {
  return concat(function, " of ", kLibrary, ": ", nvml.error_text(code));
}

// Leaves why it stopped in `inventory.trouble`.
void ask(const Nvml& nvml, GpuInventory& inventory) {
  char text[kTextSize] = {};
  unsigned count = 0;
  const auto works = [&](const char* function, int code) {
    if (code != kSuccess) inventory.trouble = failed(nvml, function, code);
    return code == kSuccess;
  };
  if (!works("nvmlSystemGetDriverVersion", nvml.driver(text, sizeof text))) return;
  inventory.driver = text;
  if (!works("nvmlDeviceGetCount_v2", nvml.count(&count))) return;
  for (unsigned number = 0; number < count; ++number) {
    Device device = nullptr;
    Memory memory;
    if (!works("nvmlDeviceGetHandleByIndex_v2", nvml.device(number, &device)) ||
        !works("nvmlDeviceGetName", nvml.name(device, text, sizeof text)) ||
        !works("nvmlDeviceGetMemoryInfo", nvml.memory(device, &memory))) {
      inventory.trouble = concat("GPU ", number, ": ", inventory.trouble);
      return;
    }
    inventory.gpus.push_back({text, static_cast<double>(memory.total), static_cast<double>(memory.used)});
  }
}

}  // namespace

GpuInventory list_gpus() {
  GpuInventory inventory{.driver = kernel_driver(), .gpus = {}, .trouble = {}};
  const int num_files = num_device_files();
  const std::unique_ptr<void, int (*)(void*)> library(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL), dlclose);
  Nvml nvml;
  if (!library) {
    if (!inventory.driver.empty() || num_files > 0)
      inventory.trouble = concat("the driver's library ", kLibrary, " cannot be loaded, so its ",
                                 format_counted(num_files, "GPU"), " cannot be named");
  } else if (!find_all(library.get(), nvml)) {
    inventory.trouble = concat(kLibrary, " lacks functions that every driver since 2012 has");
  } else if (const int code = nvml.init(); code != kSuccess) {
    // The library without its driver, as containers have it.
    if (!inventory.driver.empty() || num_files > 0) inventory.trouble = failed(nvml, "nvmlInit_v2", code);
  } else {
    ask(nvml, inventory);
    nvml.shutdown();
  }
  return inventory;
}

std::string to_text(const GpuInventory& inventory) {
  if (inventory.is_empty()) return "";
  std::vector<std::string> parts;
  std::vector<GpuInfo> kinds;  // in the order of the GPUs
  std::map<std::pair<std::string, double>, int64_t> counts;
  for (const GpuInfo& gpu : inventory.gpus)
    if (++counts[{gpu.name, gpu.memory_bytes}] == 1) kinds.push_back(gpu);
  for (const GpuInfo& gpu : kinds)
    parts.push_back(
        concat(counts.at({gpu.name, gpu.memory_bytes}), " ", gpu.name, " of ", format_bytes(gpu.memory_bytes)));
  if (parts.empty()) parts.push_back("no GPU");
  if (!inventory.driver.empty()) parts.push_back("driver " + inventory.driver);
  return concat(join(parts, ", "), inventory.trouble.empty() ? "" : concat("; ", inventory.trouble));
}

}  // namespace espalier::launch
