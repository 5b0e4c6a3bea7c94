#include "store/internal/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace espalier::store {
namespace {

constexpr int64_t kStagingBytes = int64_t{4} << 20;

[[noreturn]] void fail(const char* operation, const std::filesystem::path& path) {
  throw UserError(concat("cannot ", operation, " '", path.string(), "': ", std::strerror(errno)),
                  ExitCode::kInputOutput);
}

int64_t round_down(int64_t offset) { return offset / page_bytes() * page_bytes(); }
int64_t round_up(int64_t offset) { return round_down(offset + page_bytes() - 1); }

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

int64_t page_bytes() {
  static const int64_t bytes = std::max<int64_t>(4096, ::sysconf(_SC_PAGESIZE));
  return bytes;
}

DirectFile::DirectFile(const std::filesystem::path& path, int64_t file_bytes)
    : path_(path), filling_{make_direct_memory(kStagingBytes)}, writing_{make_direct_memory(kStagingBytes)} {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC;
  buffered_ = ::open(path.c_str(), kFlags, 0666);
  if (buffered_ < 0) fail("create", path);
  const bool has_room = file_bytes == 0 || ::fallocate(buffered_, 0, 0, file_bytes) == 0;
  if (!has_room && errno != EOPNOTSUPP && errno != ENOSYS) {
    const int error = errno;
    ::close(buffered_);
    errno = error;
    fail("write", path);
  }
  direct_ = ::open(path.c_str(), kFlags | O_DIRECT, 0666);
}

DirectFile::~DirectFile() {
  if (pending_.valid()) pending_.wait();
  if (direct_ >= 0) ::close(direct_);
  if (buffered_ >= 0) ::close(buffered_);
}

void DirectFile::seek(int64_t offset) {
  write_behind();
  filling_.base = round_down(offset);
  filling_.begin = filling_.end = offset;
}

void DirectFile::append(const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const int64_t piece = std::min(bytes, filling_.base + kStagingBytes - filling_.end);
    std::memcpy(filling_.memory.get() + (filling_.end - filling_.base), from, static_cast<size_t>(piece));
    filling_.end += piece, from += piece, bytes -= piece;
    if (filling_.end == filling_.base + kStagingBytes) write_behind();
  }
}

// What follows begins where this ends.
void DirectFile::write_behind() {
  if (pending_.valid()) pending_.get();
  std::swap(filling_, writing_);
  filling_.base = round_down(writing_.end);
  filling_.begin = filling_.end = writing_.end;
  if (writing_.begin < writing_.end) pending_ = std::async(std::launch::async, [this] { write(writing_); });
}

void DirectFile::write(const Staging& staging) {
  const int64_t first_page = std::min(staging.end, round_up(staging.begin));
  const int64_t last_page = std::max(first_page, round_down(staging.end));
  const auto write = [&](int descriptor, int64_t begin, int64_t end) {
    return write_all(descriptor, staging.memory.get() + (begin - staging.base), end - begin, begin);
  };
  const auto write_edge = [&](int64_t begin, int64_t end) {
    if (begin == end) return;
    if (keeps_edges_)
      edges_.push_back(
          {begin, std::string(staging.memory.get() + (begin - staging.base), static_cast<size_t>(end - begin))});
    else if (!write(buffered_, begin, end))
      fail("write", path_);
  };
  write_edge(staging.begin, first_page);
  if (direct_ >= 0 && !write(direct_, first_page, last_page)) {
    if (errno != EINVAL) fail("write", path_);
    ::close(std::exchange(direct_, -1));  // a file system that wants another alignment
  }
  if (direct_ < 0 && !write(buffered_, first_page, last_page)) fail("write", path_);
  write_edge(last_page, staging.end);
}

void DirectFile::flush() {
  write_behind();
  if (pending_.valid()) pending_.get();
}

void DirectFile::finish() {
  flush();
  if (::fsync(buffered_) != 0) fail("sync", path_);
  if (direct_ >= 0) ::close(std::exchange(direct_, -1));
  if (::close(std::exchange(buffered_, -1)) != 0) fail("close", path_);
}

}  // namespace espalier::store
