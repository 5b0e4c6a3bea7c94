// A control group of its own with a limit of memory, for processes of a test. Needs to be allowed to make one.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

#include "base/format.h"

namespace espalier::test {

class MemoryLimit {
 public:
  // Why there can be none here; "": there can.
  static std::string trouble() {
    MemoryLimit probe;
    if (probe.is_made_ && std::filesystem::exists(probe.file("memory.limit_in_bytes", "memory.max"))) return "";
    return "this process may not make control groups with a limit of memory";
  }

  MemoryLimit() {
    std::error_code error;
    const std::filesystem::path mounted = "/sys/fs/cgroup";
    const bool is_old = std::filesystem::exists(mounted / "memory", error);
    static int number = 0;
    folder_ = (is_old ? mounted / "memory" : mounted) / concat("espalier-test-", getpid(), "-", number++);
    is_made_ = std::filesystem::create_directory(folder_, error) && !error;
  }
  ~MemoryLimit() {
    // Only of processes that have ended, which takes the kernel a moment.
    for (int tries = 0; is_made_ && rmdir(folder_.c_str()) != 0 && tries < 200; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  void add(pid_t pid) const { write("cgroup.procs", pid); }  // with what it starts from now on
  void set(int64_t bytes) const { write(file("memory.limit_in_bytes", "memory.max").filename(), bytes); }
  int64_t used_bytes() const {
    std::ifstream in(file("memory.usage_in_bytes", "memory.current"));
    int64_t bytes = 0;
    in >> bytes;
    return bytes;
  }

 private:
  std::filesystem::path file(const char* old_name, const char* name) const {
    return std::filesystem::exists(folder_ / old_name) ? folder_ / old_name : folder_ / name;
  }
  void write(const std::filesystem::path& name, int64_t value) const { std::ofstream(folder_ / name) << value; }

  std::filesystem::path folder_;
  bool is_made_ = false;
};

}  // namespace espalier::test
