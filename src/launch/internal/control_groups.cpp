#include "launch/internal/control_groups.h"

#include <fstream>

namespace espalier::launch {

namespace fs = std::filesystem;

std::vector<ControlGroup> control_groups(const fs::path& root, const std::string& controller) {
  std::vector<ControlGroup> groups;
  std::ifstream file(root / "proc/self/cgroup");  // "0::/job", or of version 1 "4:cpu,cpuacct:/job"
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const int version = controllers == ",," ? 2 : 1;
    if (version == 1 && controllers.find("," + controller + ",") == std::string::npos) continue;
    const fs::path mount = version == 2 ? root / "sys/fs/cgroup" : root / "sys/fs/cgroup" / controller;
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
      groups.push_back({group.empty() ? mount : mount / group, version});
      if (group.empty()) break;
    }
  }
  return groups;
}

}  // namespace espalier::launch
