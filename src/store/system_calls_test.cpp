// The C library's functions as test_system.h describes them: the program's own come before the library's.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "store/internal/test_system.h"

namespace espalier::store::test {

SystemCalls& system_calls() {
  static SystemCalls calls;
  return calls;
}

namespace {

std::filesystem::path path_of(int descriptor) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), ignored);
}

int64_t used_bytes(const std::filesystem::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

}  // namespace
}  // namespace espalier::store::test

using espalier::store::test::path_of;
using espalier::store::test::system_calls;

extern "C" {

int flock(int descriptor, int operation) noexcept {
  if (system_calls().flock_error == 0) return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
  errno = system_calls().flock_error;
  return -1;
}

int fsync(int descriptor) {
  if (!system_calls().failing_fsync.empty() && path_of(descriptor) == system_calls().failing_fsync) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

int statvfs(const char* path, struct statvfs* status) noexcept {
  const auto& calls = system_calls();
  struct statfs real;
  if (::syscall(SYS_statfs, path, &real) != 0) return -1;
  *status = {};
  status->f_bsize = status->f_frsize = static_cast<uint64_t>(real.f_bsize);
  status->f_bavail = real.f_bavail;
  if (path != calls.limited_disk) return 0;
  status->f_frsize = 1;
  status->f_bavail =
      static_cast<uint64_t>(std::max<int64_t>(0, calls.disk_bytes - espalier::store::test::used_bytes(path)));
  return 0;
}

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  const auto& on_write = system_calls().on_write;
  if (!on_write || !on_write(path_of(descriptor).string(), offset, static_cast<int64_t>(bytes)))
    return ::syscall(SYS_pwrite64, descriptor, data, bytes, offset);
  // Aligned as O_DIRECT wants it.
  const std::unique_ptr<char, decltype(&std::free)> other(
      static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)), &std::free);
  std::memcpy(other.get(), data, bytes);
  other.get()[bytes / 2] ^= 4;
  return ::syscall(SYS_pwrite64, descriptor, other.get(), bytes, offset);
}

int rename(const char* from, const char* to) noexcept {
  if (const auto& before_move = system_calls().before_move) before_move();
  return static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}

int link(const char* from, const char* to) noexcept {
  if (const auto& before_move = system_calls().before_move) before_move();
  return static_cast<int>(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

}  // extern "C"
