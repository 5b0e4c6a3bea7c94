// Loaded before other libraries (LD_PRELOAD): as long as the file FULL_QUOTA exists, nothing can be written below the
// folder FULL_QUOTA_OF, as when the kernel says that a quota is used up (EDQUOT).
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool is_refused(int file) {
  const char *mark = std::getenv("FULL_QUOTA"), *folder = std::getenv("FULL_QUOTA_OF");
  if (mark == nullptr || folder == nullptr || access(mark, F_OK) != 0) return false;
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = '\0';
  if (std::strncmp(path, folder, std::strlen(folder)) != 0) return false;
  errno = EDQUOT;
  return true;
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* data, size_t size) {
  return is_refused(file) ? -1 : syscall(SYS_write, file, data, size);
}
ssize_t writev(int file, const iovec* parts, int count) {
  return is_refused(file) ? -1 : syscall(SYS_writev, file, parts, count);
}
ssize_t pwrite64(int file, const void* data, size_t size, off64_t offset) {
  return is_refused(file) ? -1 : syscall(SYS_pwrite64, file, data, size, offset);
}
ssize_t pwrite(int file, const void* data, size_t size, off_t offset) { return pwrite64(file, data, size, offset); }
int fallocate64(int file, int mode, off64_t offset, off64_t size) {
  return is_refused(file) ? -1 : static_cast<int>(syscall(SYS_fallocate, file, mode, offset, size));
}
int fallocate(int file, int mode, off_t offset, off_t size) { return fallocate64(file, mode, offset, size); }
}
