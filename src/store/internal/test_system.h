// For the tests of this library: system calls that fail or lie as a file system may (see system_calls_test.cpp, which
// stands in for the C library's functions in the whole test program).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace espalier::store::test {

// A call by which something of the file system changes or is opened, before it is made.
struct SystemCall {
  const char* name;    // "open", "write", "pwrite", "fsync", "fallocate", "ftruncate", "mkdir", "rename", "link",
                       // "remove", "close"
  std::string path;    // of the file or folder; of the old name
  std::string target;  // the new name
  const void* data = nullptr;
  int64_t offset = 0, bytes = 0;
  bool creates = false;  // open
};

struct SystemCalls {
  // Returns the errno with which the call fails without being made; 0: it is made. By several threads at once.
  std::function<int(const SystemCall&)> before;
  // After a call of `before` that was made and succeeded.
  std::function<void(const SystemCall&)> after;
  int flock_error = 0;                  // of every flock; 0: as usual
  std::filesystem::path failing_fsync;  // fsync of this file or folder fails with EIO
  std::filesystem::path limited_disk;   // statvfs of this folder: as if it were on a disk of `disk_bytes`
  int64_t disk_bytes = 0;
  // Called with path, offset and length of every pwrite; true: one bit of what is written is lost.
  std::function<bool(const std::string&, int64_t, int64_t)> on_write;
  std::function<void()> before_move;  // before every rename and link
};

// What is set here holds until the next test sets it back.
SystemCalls& system_calls();

// Sets everything back at its end.
class SystemCallsScope {
 public:
  ~SystemCallsScope() { system_calls() = {}; }
};

}  // namespace espalier::store::test
