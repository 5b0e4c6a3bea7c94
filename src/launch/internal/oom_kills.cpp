#include "launch/internal/oom_kills.h"

#include <fstream>
#include <string>

#include "launch/internal/control_groups.h"

namespace espalier::launch::internal {

int64_t num_oom_kills(const std::filesystem::path& root) {
  for (const ControlGroup& group : control_groups(root, "memory")) {
    std::ifstream file(group.folder / (group.version == 2 ? "memory.events" : "memory.oom_control"));
    std::string name;
    for (int64_t value = 0; file >> name >> value;)
      if (name == "oom_kill") return value;
  }
  return 0;
}

}  // namespace espalier::launch::internal
