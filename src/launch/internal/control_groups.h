// The kernel's control groups that this process is in.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace espalier::launch {

struct ControlGroup {
  std::filesystem::path folder;
  int version = 2;
};

// Those that may limit what `controller` ("memory", "cpu") counts: its own and all above it, the innermost first. In a
// container, where the path may be the host's, some of them do not exist. `root` stands before /proc and /sys.
std::vector<ControlGroup> control_groups(const std::filesystem::path& root, const std::string& controller);

}  // namespace espalier::launch
