#include "curate/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/host_name.h"
#include "base/log.h"

namespace espalier::curate {

std::string process_name() { return concat(host_name(), "-", ::getpid()); }

std::optional<FileLock> FileLock::try_take(const std::filesystem::path& file, Kind kind) {
  for (;;) {
    FileLock lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (lock.descriptor_ < 0)
      throw UserError(concat("cannot create '", file.string(), "': ", std::strerror(errno)), ExitCode::kCannotCreate);
    while (::flock(lock.descriptor_, (kind == Kind::kAlone ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno == EWOULDBLOCK) return std::nullopt;
      warn_once(concat("files in '", file.parent_path().string(), "' cannot be locked (", std::strerror(errno),
                       "): let only one process work there"));
      break;
    }
    // Its former owner may have removed it between the two calls.
    struct stat held, named;
    if (::fstat(lock.descriptor_, &held) != 0 || ::stat(file.c_str(), &named) != 0 || held.st_ino != named.st_ino)
      continue;
    if (kind == Kind::kAlone) lock.note_owner();
    return lock;
  }
}

FileLock FileLock::take(const std::filesystem::path& file) {
  constexpr auto kSilent = std::chrono::seconds(2);
  const auto start = std::chrono::steady_clock::now();
  for (bool told = false;;) {
    if (std::optional<FileLock> lock = try_take(file)) return std::move(*lock);
    if (!told && std::chrono::steady_clock::now() - start >= kSilent) {
      const std::string owner = read_file(file);
      log_info("waiting for ", owner.empty() ? "another process" : concat("the process ", owner), ", which holds '",
               file.string(), "'");
      told = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// For those who wait; a lock without it is as good.
void FileLock::note_owner() const {
  const std::string name = process_name();
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, name.data(), name.size(), 0) < 0) return;
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}
FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

}  // namespace espalier::curate
