// How much memory a process of this machine can still get.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace espalier::launch {

struct MachineMemory {
  int64_t available_bytes = 0;
  std::string source;  // "MemAvailable of /proc/meminfo", "the limit of the cgroup /sys/fs/cgroup/job"
};

// The smallest of what the kernel has and what the control groups above this process leave (version 2 or 1), page cache
// that can be dropped counted as free. `root` stands before /proc and /sys. UserError where the kernel does not say.
MachineMemory machine_memory(const std::filesystem::path& root = "/");

}  // namespace espalier::launch
