#include "store/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/host_name.h"
#include "store/internal/owner_file.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".lock";
constexpr const char* kOwnerName = ".lock.owner";

std::string lock_text() {
  char now[32];
  const std::time_t seconds = std::time(nullptr);
  std::tm parts;
  ::gmtime_r(&seconds, &parts);
  std::strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return concat("process ", ::getpid(), " on ", host_name(), ", since ", now);
}

// What file systems without flock answer: Lustre ENOSYS or EOPNOTSUPP, NFS without its lock service ENOLCK.
bool has_no_locks(int error) { return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK; }

// False with errno where not all of it could be written; the first attempt may have written a part.
bool write_lock_text(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

std::string holder_of(const fs::path& run_folder) {
  std::error_code ignored;
  if (fs::exists(run_folder / kOwnerName, ignored)) return OwnerRecord::parse(read_file(run_folder / kOwnerName)).text;
  return strip(read_file(run_folder / kLockName));
}

}  // namespace

std::optional<RunLock> RunLock::take_if_free(const fs::path& run_folder) {
  const std::error_code error = create_folders(run_folder);
  const fs::path path = run_folder / kLockName;
  RunLock lock;
  if (!error) lock.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock.descriptor_ < 0)
    throw UserError(concat("cannot create '", path.string(), "': ", error ? error.message() : std::strerror(errno),
                           ". Name a folder that can be created and written to."),
                    ExitCode::kCannotCreate);
  const std::string text = lock_text();
  if (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    if (!has_no_locks(errno))
      throw UserError(concat("cannot lock '", path.string(), "': ", std::strerror(errno)), ExitCode::kInputOutput);
    lock.owner_ = OwnerFile::take_if_free(run_folder / kOwnerName, text);
    if (lock.owner_ == nullptr) return std::nullopt;
  }
  if (::ftruncate(lock.descriptor_, 0) != 0 || !write_lock_text(lock.descriptor_, text + "\n")) {  // it is for people
    const int reason = errno;
    ::unlink(path.c_str());  // it is held, and so nobody else's
    throw UserError(concat("cannot write '", path.string(), "': ", std::strerror(reason)), ExitCode::kInputOutput);
  }
  return lock;
}

RunLock::RunLock(const fs::path& run_folder) {
  std::optional<RunLock> lock = take_if_free(run_folder);
  if (!lock)
    throw UserError(concat("'", run_folder.string(), "' is in use by ", holder_of(run_folder),
                           ". Wait for that run, stop it, or use another --save."),
                    ExitCode::kCannotCreate);
  *this = std::move(*lock);
}

RunLock::~RunLock() {
  owner_.reset();
  if (descriptor_ >= 0) ::close(descriptor_);
}

RunLock::RunLock(RunLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), owner_(std::move(other.owner_)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(owner_, other.owner_);
  return *this;
}

}  // namespace espalier::store
