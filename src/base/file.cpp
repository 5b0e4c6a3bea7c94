#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/internal/open_to_read.h"
#include "base/pending_file.h"

namespace espalier {
namespace internal {

void fail_on_file(const char* operation, const std::filesystem::path& path) {
  const int reason = errno;
  const ExitCode code = reason == ENOENT ? ExitCode::kMissingInput : ExitCode::kInputOutput;
  throw UserError(concat("cannot ", operation, " '", path.string(), "': ", std::strerror(reason)), code);
}

// What is neither a file nor a folder is refused before it is opened: a FIFO would wait for a writer that never comes,
// a device has no end.
int open_to_read(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::file_type type = std::filesystem::status(path, ignored).type();
  const std::string kind = kind_of_no_file(type);
  if (!kind.empty() && type != std::filesystem::file_type::directory)
    throw UserError(concat("'", path.string(), "' is ", kind,
                           "; a regular file is needed. Write its content to a file and name that."),
                    ExitCode::kBadData);
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace internal

namespace {

[[noreturn]] void fail(const char* operation, const std::filesystem::path& path) {
  internal::fail_on_file(operation, path);
}
using internal::open_to_read;

[[noreturn]] void fail_at_end(const std::filesystem::path& path, int64_t offset, size_t wanted) {
  throw UserError(concat("'", path.string(), "' ends at byte ", offset, "; ", wanted,
                         " more were expected. Is it being rewritten?"),
                  ExitCode::kInputOutput);
}

void write_all(int descriptor, const void* data, size_t size, int64_t offset, const std::filesystem::path& path) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::pwrite(descriptor, bytes, std::min<size_t>(size, 1u << 30), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("write", path);
    bytes += written, offset += written, size -= static_cast<size_t>(written);
  }
}

}  // namespace

const char* kind_of_no_file(std::filesystem::file_type type) {
  using Type = std::filesystem::file_type;
  switch (type) {
    case Type::directory: return "a folder";
    case Type::fifo: return "a pipe (FIFO)";
    case Type::socket: return "a socket";
    case Type::block:
    case Type::character: return "a device";
    default: return "";
  }
}

std::string read_file(const std::filesystem::path& path) {
  const int descriptor = open_to_read(path);
  if (descriptor < 0) fail("open", path);
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      ::close(descriptor);
      fail("read", path);
    }
    if (got == 0) break;
    content.append(buffer, static_cast<size_t>(got));
  }
  ::close(descriptor);
  return content;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  PendingFile file(path);
  write_synced(file, content);
  move_into_place({&file});
}

void fsync_directory(const std::filesystem::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail("open", directory);
  // Some network file systems refuse fsync on a folder; the rename is then as durable as they make it.
  const bool failed = ::fsync(descriptor) != 0 && errno != EINVAL;
  ::close(descriptor);
  if (failed) fail("sync", directory);
}

void sync_file(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail("open", path);
  const bool failed = ::fsync(descriptor) != 0;
  ::close(descriptor);
  if (failed) fail("sync", path);
}

std::error_code create_folders(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path folder = fs::absolute(path).lexically_normal();
       folder.has_relative_path() && !fs::exists(folder, error); folder = folder.parent_path())
    if (folder.has_filename()) missing.push_back(folder);
  fs::create_directories(path, error);
  for (const fs::path& folder : missing) {
    if (error) break;
    const int parent = ::open(folder.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // One in which others may write but not read, and file systems that refuse it, do what they do.
    if (parent < 0 && errno == EACCES) continue;
    if (parent < 0 || (::fsync(parent) != 0 && errno != EINVAL)) error = {errno, std::generic_category()};
    if (parent >= 0) ::close(parent);
  }
  return error;
}

int64_t file_size_bytes(const std::filesystem::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) fail("open", path);
  return status.st_size;
}

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  descriptor_ = open_to_read(path);
  if (descriptor_ < 0) fail("open", path);
  struct stat status;
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || S_ISDIR(status.st_mode)) {
    if (known) errno = EISDIR;
    ::close(descriptor_);
    fail("open", path);
  }
  size_bytes_ = status.st_size;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_) {}

void InputFile::read_at(void* data, size_t size, int64_t offset) const {
  auto* bytes = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::pread(descriptor_, bytes, std::min<size_t>(size, 1u << 30), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path_);
    if (got == 0) fail_at_end(path_, offset, size);
    bytes += got, offset += got, size -= static_cast<size_t>(got);
  }
}

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("create", path);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), position_(other.position_) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(position_, other.position_);
  return *this;
}

void OutputFile::write(const void* data, size_t size) {
  write_all(descriptor_, data, size, position_, path_);
  position_ += static_cast<int64_t>(size);
}

void OutputFile::write_from(const InputFile& source, int64_t offset, int64_t size) {
  while (size > 0) {
    off_t from = offset, to = position_;
    const ssize_t copied = ::copy_file_range(source.descriptor_, &from, descriptor_, &to, static_cast<size_t>(size), 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0) break;  // not between these file systems, or not on them at all
    if (copied == 0) fail_at_end(source.path_, offset, static_cast<size_t>(size));
    offset += copied, position_ += copied, size -= copied;
  }
  std::vector<char> piece(static_cast<size_t>(std::min<int64_t>(size, 4 << 20)));
  while (size > 0) {
    const size_t now = static_cast<size_t>(std::min<int64_t>(size, static_cast<int64_t>(piece.size())));
    source.read_at(piece.data(), now, offset);
    write(piece.data(), now);
    offset += static_cast<int64_t>(now), size -= static_cast<int64_t>(now);
  }
}

void OutputFile::write_at(const void* data, size_t size, int64_t offset) {
  write_all(descriptor_, data, size, offset, path_);
}

void OutputFile::sync() {
  if (::fsync(descriptor_) != 0) fail("sync", path_);
}

void OutputFile::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("close", path_);
}

}  // namespace espalier
