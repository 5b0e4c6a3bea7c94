// The GPUs of this machine, as NVIDIA's driver lists them. Its own library (NVML, libnvidia-ml.so.1) is loaded where it
// is installed, so nothing of NVIDIA's is needed to build, and a process that only asks keeps no GPU busy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::launch {

struct GpuInfo {
  std::string name;         // "NVIDIA H100 80GB HBM3"
  double memory_bytes = 0;  // in all
  double used_bytes = 0;    // by whoever
  bool operator==(const GpuInfo&) const = default;
};

struct GpuInventory {
  std::string driver;         // "550.54.15"; empty: there is none
  std::vector<GpuInfo> gpus;  // of the machine, whatever CUDA_VISIBLE_DEVICES shows to a process
  std::string trouble;        // why a driver that is there, or whose device files are, lists no GPU; empty: it does

  bool is_empty() const { return driver.empty() && gpus.empty() && trouble.empty(); }
};

GpuInventory list_gpus();

// "2 NVIDIA H100 80GB HBM3 of 79.6 GiB, driver 550.54.15"; "" where is_empty().
std::string to_text(const GpuInventory& inventory);

}  // namespace espalier::launch
