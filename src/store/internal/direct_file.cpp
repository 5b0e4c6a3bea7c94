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

}  // namespace

void DirectFile::Free::operator()(void* memory) const { std::free(memory); }

DirectFile::DirectFile(const std::filesystem::path& path)
    : path_(path), staging_(static_cast<char*>(std::aligned_alloc(kAlignment, kStagingBytes))) {
  if (staging_ == nullptr) throw std::bad_alloc();
  constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  descriptor_ = ::open(path.c_str(), flags | O_DIRECT, 0644);
  if (descriptor_ < 0 && errno == EINVAL) descriptor_ = ::open(path.c_str(), flags, 0644);
  if (descriptor_ < 0) fail("create", path);
}

DirectFile::~DirectFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void DirectFile::append(const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const int64_t piece = std::min(bytes, kStagingBytes - staged_);
    std::memcpy(staging_.get() + staged_, from, static_cast<size_t>(piece));
    staged_ += piece, from += piece, bytes -= piece;
    if (staged_ == kStagingBytes) flush(staged_);
  }
}

void DirectFile::flush(int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t got =
        ::pwrite(descriptor_, staging_.get() + done, static_cast<size_t>(bytes - done), written_ + done);
    if (got < 0 && errno == EINTR) continue;
    // A file system that wants another alignment, or a first write that ended in the middle of a page.
    const int flags = ::fcntl(descriptor_, F_GETFL);
    if (got < 0 && errno == EINVAL && (flags & O_DIRECT) != 0 && ::fcntl(descriptor_, F_SETFL, flags & ~O_DIRECT) == 0)
      continue;
    if (got <= 0) fail("write", path_);
    done += got;
  }
  written_ += staged_;
  staged_ = 0;
}

void DirectFile::finish() {
  const int64_t length = position();
  const int64_t padded = (staged_ + kAlignment - 1) / kAlignment * kAlignment;
  std::memset(staging_.get() + staged_, 0, static_cast<size_t>(padded - staged_));
  flush(padded);
  if (::ftruncate(descriptor_, length) != 0) fail("shorten", path_);
  if (::fsync(descriptor_) != 0) fail("sync", path_);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("close", path_);
}

}  // namespace espalier::store
