// One name for each folder, so that two of them can be compared.
#pragma once

#include <filesystem>

namespace espalier::store::internal {

// Also of a folder that is not there.
inline std::filesystem::path absolute_path(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path found = std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  if (error) found = std::filesystem::absolute(path).lexically_normal();
  return found.has_filename() ? found : found.parent_path();  // "run/" is "run"
}

}  // namespace espalier::store::internal
