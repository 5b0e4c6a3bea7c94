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
#include <cstdarg>
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

namespace {

using espalier::store::test::SystemCall;

// Between two calls of ours to the same thread's hooks there are none of theirs.
thread_local bool in_hook = false;

// Runs `make` unless `before` has it fail; both as the C library's functions do, -1 and errno for an error.
template <class Make>
auto intercepted(const SystemCall& call, const Make& make) -> decltype(make()) {
  const auto& calls = system_calls();
  if (in_hook || (!calls.before && !calls.after)) return make();
  in_hook = true;
  const int error = calls.before ? calls.before(call) : 0;
  in_hook = false;
  if (error != 0) {
    errno = error;
    return -1;
  }
  const auto result = make();
  const int kept = errno;
  if (result >= 0 && calls.after) {
    in_hook = true;
    calls.after(call);
    in_hook = false;
  }
  errno = kept;
  return result;
}

std::string path_in(int directory, const char* path) {
  if (path[0] == '/' || directory == AT_FDCWD) return path;
  return path_of(directory) / path;
}

int open_file(int directory, const char* path, int flags, mode_t mode) {
  const SystemCall call{
      .name = "open", .path = path_in(directory, path), .target = "", .creates = (flags & O_CREAT) != 0};
  return intercepted(call, [&] { return static_cast<int>(::syscall(SYS_openat, directory, path, flags, mode)); });
}

int remove_name(int directory, const char* path, int flags) {
  const SystemCall call{.name = "remove", .path = path_in(directory, path), .target = ""};
  return intercepted(call, [&] { return static_cast<int>(::syscall(SYS_unlinkat, directory, path, flags)); });
}

mode_t mode_of(int flags, va_list list) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(list, int)) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_file(AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) __attribute__((alias("open")));

int openat(int directory, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_file(directory, path, flags, mode);
}

int openat64(int directory, const char* path, int flags, ...) __attribute__((alias("openat")));

int close(int descriptor) {
  if (!system_calls().before) return static_cast<int>(::syscall(SYS_close, descriptor));
  const SystemCall call{.name = "close", .path = path_of(descriptor), .target = ""};
  // A failing close has closed anyway.
  bool closed = false;
  const int result = intercepted(call, [&] {
    closed = true;
    return static_cast<int>(::syscall(SYS_close, descriptor));
  });
  if (!closed) {
    const int kept = errno;
    ::syscall(SYS_close, descriptor);
    errno = kept;
  }
  return result;
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  if (!system_calls().before) return ::syscall(SYS_write, descriptor, data, bytes);
  const SystemCall call{.name = "write",
                        .path = path_of(descriptor),
                        .target = "",
                        .data = data,
                        .offset = ::lseek(descriptor, 0, SEEK_CUR),
                        .bytes = static_cast<int64_t>(bytes)};
  return intercepted(call, [&]() -> ssize_t { return ::syscall(SYS_write, descriptor, data, bytes); });
}

int ftruncate(int descriptor, off_t bytes) noexcept {
  const SystemCall call{.name = "ftruncate", .path = path_of(descriptor), .target = "", .bytes = bytes};
  return intercepted(call, [&] { return static_cast<int>(::syscall(SYS_ftruncate, descriptor, bytes)); });
}

int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  const SystemCall call{
      .name = "fallocate", .path = path_of(descriptor), .target = "", .offset = offset, .bytes = bytes};
  return intercepted(call, [&] { return static_cast<int>(::syscall(SYS_fallocate, descriptor, mode, offset, bytes)); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  const SystemCall call{.name = "mkdir", .path = path, .target = ""};
  return intercepted(call, [&] { return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode)); });
}

int unlink(const char* path) noexcept { return remove_name(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return remove_name(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int directory, const char* path, int flags) noexcept { return remove_name(directory, path, flags); }
int remove(const char* path) noexcept {
  struct stat status;
  const bool is_folder = ::lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
  return remove_name(AT_FDCWD, path, is_folder ? AT_REMOVEDIR : 0);
}

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
  const SystemCall call{.name = "fsync", .path = path_of(descriptor), .target = ""};
  return intercepted(call, [&] { return static_cast<int>(::syscall(SYS_fsync, descriptor)); });
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
  if (!on_write || !on_write(path_of(descriptor).string(), offset, static_cast<int64_t>(bytes))) {
    const SystemCall call{.name = "pwrite",
                          .path = path_of(descriptor),
                          .target = "",
                          .data = data,
                          .offset = offset,
                          .bytes = static_cast<int64_t>(bytes)};
    return intercepted(call, [&]() -> ssize_t { return ::syscall(SYS_pwrite64, descriptor, data, bytes, offset); });
  }
  // Aligned as O_DIRECT wants it.
  const std::unique_ptr<char, decltype(&std::free)> other(
      static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)), &std::free);
  std::memcpy(other.get(), data, bytes);
  other.get()[bytes / 2] ^= 4;
  return ::syscall(SYS_pwrite64, descriptor, other.get(), bytes, offset);
}

int rename(const char* from, const char* to) noexcept {
  if (const auto& before_move = system_calls().before_move) before_move();
  const SystemCall call{.name = "rename", .path = from, .target = to};
  return intercepted(call, [&] { return static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to)); });
}

int link(const char* from, const char* to) noexcept {
  if (const auto& before_move = system_calls().before_move) before_move();
  const SystemCall call{.name = "link", .path = from, .target = to};
  return intercepted(call, [&] { return static_cast<int>(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0)); });
}

}  // extern "C"
