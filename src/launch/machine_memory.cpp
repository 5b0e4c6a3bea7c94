#include "launch/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "launch/internal/control_groups.h"

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

// What the limit of a group leaves, where it has one.
void look_at_group(const ControlGroup& group, MachineMemory& memory) {
  const CgroupFiles& files = group.version == 2 ? kVersion2 : kVersion1;
  const auto limit = number_in(group.folder / files.limit), usage = number_in(group.folder / files.usage);
  if (!limit || !usage) return;
  const int64_t cache = number_after(group.folder / "memory.stat", files.inactive).value_or(0) +
                        number_after(group.folder / "memory.stat", files.active).value_or(0);
  const int64_t left = std::max<int64_t>(0, *limit - (*usage - std::min(cache, *usage)));
  if (left < memory.available_bytes) memory = {left, concat("the limit of the control group ", group.folder.string())};
}

}  // namespace

MachineMemory machine_memory(const fs::path& root) {
  const auto kibibytes = number_after(root / "proc/meminfo", "MemAvailable:");
  if (!kibibytes) throw UserError("/proc/meminfo does not say how much memory is available (MemAvailable)");
  MachineMemory memory{*kibibytes * 1024, "MemAvailable of /proc/meminfo"};
  for (const ControlGroup& group : control_groups(root, "memory")) look_at_group(group, memory);
  return memory;
}

}  // namespace espalier::launch
