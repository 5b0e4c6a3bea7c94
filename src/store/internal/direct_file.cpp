#include "store/internal/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace espalier::store {
namespace {

// What O_DIRECT wants of addresses, offsets and lengths, on any disk in use.
constexpr int64_t kAlignment = 4096;
constexpr int64_t kStagingBytes = int64_t{4} << 20;

[[noreturn]] void fail(const char* operation, const std::filesystem::path& path) {
  throw UserError(concat("cannot ", operation, " '", path.string(), "': ", std::strerror(errno)),
                  ExitCode::kInputOutput);
}

int64_t round_down(int64_t offset) { return offset / kAlignment * kAlignment; }
int64_t round_up(int64_t offset) { return round_down(offset + kAlignment - 1); }

// False, with errno, when not everything could be written.
bool write_all(int descriptor, const char* data, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const ssize_t got = ::pwrite(descriptor, data, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got, offset += got, bytes -= got;
  }
  return true;
}

}  // namespace

void DirectFile::Free::operator()(void* memory) const { std::free(memory); }

DirectFile::DirectFile(const std::filesystem::path& path)
    : path_(path), staging_(static_cast<char*>(std::aligned_alloc(kAlignment, kStagingBytes))) {
  if (staging_ == nullptr) throw std::bad_alloc();
  constexpr int flags = O_WRONLY | O_CREAT | O_CLOEXEC;
  buffered_ = ::open(path.c_str(), flags, 0644);
  if (buffered_ < 0) fail("create", path);
  direct_ = ::open(path.c_str(), flags | O_DIRECT, 0644);
}

DirectFile::~DirectFile() {
  if (direct_ >= 0) ::close(direct_);
  if (buffered_ >= 0) ::close(buffered_);
}

void DirectFile::seek(int64_t offset) {
  flush();
  base_ = round_down(offset);
  begin_ = end_ = offset;
}

void DirectFile::append(const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const int64_t piece = std::min(bytes, base_ + kStagingBytes - end_);
    std::memcpy(staging_.get() + (end_ - base_), from, static_cast<size_t>(piece));
    end_ += piece, from += piece, bytes -= piece;
    if (end_ == base_ + kStagingBytes) {
      flush();
      base_ = begin_ = end_;
    }
  }
}

void DirectFile::flush() {
  const int64_t first_page = std::min(end_, round_up(begin_)), last_page = std::max(first_page, round_down(end_));
  const auto write = [&](int descriptor, int64_t begin, int64_t end) {
    return write_all(descriptor, staging_.get() + (begin - base_), end - begin, begin);
  };
  if (!write(buffered_, begin_, first_page)) fail("write", path_);
  if (direct_ >= 0 && !write(direct_, first_page, last_page)) {
    if (errno != EINVAL) fail("write", path_);
    ::close(std::exchange(direct_, -1));  // a file system that wants another alignment
  }
  if (direct_ < 0 && !write(buffered_, first_page, last_page)) fail("write", path_);
  if (!write(buffered_, last_page, end_)) fail("write", path_);
  begin_ = end_;
}

void DirectFile::finish() {
  flush();
  if (::fsync(buffered_) != 0) fail("sync", path_);
  if (direct_ >= 0) ::close(std::exchange(direct_, -1));
  if (::close(std::exchange(buffered_, -1)) != 0) fail("close", path_);
}

}  // namespace espalier::store
