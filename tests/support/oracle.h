// Files that other implementations wrote: the small ones are in tests/data, all of them in ../shared/data where the
// checkout has it.
#pragma once

#include <filesystem>
#include <string>

namespace espalier::test {

// tests/data/NAME or ../shared/data/NAME; empty when neither exists (the test is then to be skipped).
inline std::filesystem::path find_data(const std::string& name) {
  for (const char* folder : {"tests/data", "../shared/data", "../../shared/data"})
    if (std::filesystem::exists(std::filesystem::path(folder) / name)) return std::filesystem::path(folder) / name;
  return {};
}

}  // namespace espalier::test
