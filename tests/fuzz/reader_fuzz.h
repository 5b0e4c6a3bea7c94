// A reader of files under libFuzzer: the input becomes a file, and the reader may accept it or throw a UserError.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace espalier::fuzz {

// The input as a file in a folder of this process, which the next input replaces. `name` is the file's.
inline std::filesystem::path written(const uint8_t* data, size_t size, const char* name) {
  static const std::filesystem::path folder = [] {
    std::filesystem::path made =
        std::filesystem::temp_directory_path() / ("espalier_fuzz_" + std::to_string(::getpid()));
    std::filesystem::create_directories(made);
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(
          std::filesystem::temp_directory_path() / ("espalier_fuzz_" + std::to_string(::getpid())), ignored);
    });
    return made;
  }();
  std::ofstream file(folder / name, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  return folder / name;
}

// Anything but a UserError that leaves `use` ends the process.
template <class Use>
int try_reader(Use&& use) {
  try {
    use();
  } catch (const UserError&) {
  }
  return 0;
}

}  // namespace espalier::fuzz
