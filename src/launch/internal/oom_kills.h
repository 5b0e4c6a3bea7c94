// How often the kernel has ended a process of this control group for want of memory.
#pragma once

#include <cstdint>
#include <filesystem>

namespace espalier::launch::internal {

// Of the innermost group that counts; 0 where none does. `root` stands before /proc and /sys.
int64_t num_oom_kills(const std::filesystem::path& root = "/");

}  // namespace espalier::launch::internal
