#include "launch/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/format.h"

namespace espalier::launch {
namespace {

namespace fs = std::filesystem;

// A file with one number; nothing for "max", or where there is no such file.
std::optional<int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// The number after `name` in a file of lines "NAME NUMBER ...".
std::optional<int64_t> number_after(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = split_blanks(line);
    if (words.size() < 2 || words[0] != name) continue;
    return std::strtoll(words[1].c_str(), nullptr, 10);
  }
  return std::nullopt;
}

struct CgroupFiles {
  const char *limit, *usage, *inactive, *active;
};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file", "active_file"};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                   "total_active_file"};

// The group at mount/path and those above it.
void look_upwards(const fs::path& mount, const fs::path& path, const CgroupFiles& files, MachineMemory& memory) {
  for (fs::path group = path.relative_path();; group = group.parent_path()) {
    const fs::path folder = group.empty() ? mount : mount / group;
    const auto limit = number_in(folder / files.limit), usage = number_in(folder / files.usage);
    if (limit && usage) {
      const int64_t cache = number_after(folder / "memory.stat", files.inactive).value_or(0) +
                            number_after(folder / "memory.stat", files.active).value_or(0);
      const int64_t left = std::max<int64_t>(0, *limit - (*usage - std::min(cache, *usage)));
      if (left < memory.available_bytes) memory = {left, concat("the limit of the control group ", folder.string())};
    }
    if (group.empty()) return;
  }
}

}  // namespace

MachineMemory machine_memory(const fs::path& root) {
  const auto kibibytes = number_after(root / "proc/meminfo", "MemAvailable:");
  if (!kibibytes) throw UserError("/proc/meminfo does not say how much memory is available (MemAvailable)");
  MachineMemory memory{*kibibytes * 1024, "MemAvailable of /proc/meminfo"};
  std::ifstream groups(root / "proc/self/cgroup");  // "0::/job", or of version 1 "4:memory:/job"
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",",
                      path = line.substr(second + 1);
    if (controllers == ",,") look_upwards(root / "sys/fs/cgroup", path, kVersion2, memory);
    if (controllers.find(",memory,") != std::string::npos)
      look_upwards(root / "sys/fs/cgroup/memory", path, kVersion1, memory);
  }
  return memory;
}

}  // namespace espalier::launch
