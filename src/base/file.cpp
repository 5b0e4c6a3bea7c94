#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

[[noreturn]] void fail(const char* operation, const std::filesystem::path& path) {
  const int reason = errno;
  const ExitCode code = reason == ENOENT ? ExitCode::kMissingInput : ExitCode::kInputOutput;
  throw UserError(concat("cannot ", operation, " '", path.string(), "': ", std::strerror(reason)), code);
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

std::string read_file(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
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
  const std::filesystem::path temporary = path.string() + ".tmp";
  OutputFile file(temporary);
  file.write(content.data(), content.size());
  file.sync();
  file.close();
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail("rename", temporary);
  fsync_directory(path.has_parent_path() ? path.parent_path() : ".");
}

void fsync_directory(const std::filesystem::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail("open", directory);
  // Some network file systems refuse fsync on a folder; the rename is then as durable as they make it.
  const bool failed = ::fsync(descriptor) != 0 && errno != EINVAL;
  ::close(descriptor);
  if (failed) fail("sync", directory);
}

int64_t file_size_bytes(const std::filesystem::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) fail("open", path);
  return status.st_size;
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail("open", path);
  struct stat status;
  if (::fstat(descriptor, &status) != 0 || S_ISDIR(status.st_mode)) {
    if (S_ISDIR(status.st_mode)) errno = EISDIR;
    ::close(descriptor);
    fail("open", path);
  }
  size_ = static_cast<size_t>(status.st_size);
  void* mapping = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  ::close(descriptor);
  if (mapping == MAP_FAILED) fail("map", path);
  data_ = static_cast<const uint8_t*>(mapping);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
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
