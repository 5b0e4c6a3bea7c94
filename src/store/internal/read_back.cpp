#include "store/internal/read_back.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "store/internal/direct_file.h"
#include "store/internal/direct_memory.h"

namespace espalier::store {
namespace {

constexpr int64_t kBackChunkBytes = int64_t{4} << 20;

[[noreturn]] void fail_reading_back(const std::filesystem::path& path, int64_t offset, const std::string& reason) {
  throw UserError(concat("cannot read back '", path.string(), "' at byte ", offset, ": ", reason),
                  ExitCode::kInputOutput);
}

// A file read past the page cache, or where that cannot be had after its pages were dropped from it.
class BackFile {
 public:
  explicit BackFile(const std::filesystem::path& path) : path_(path), buffer_(make_direct_memory(kBackChunkBytes)) {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (descriptor_ < 0) open_buffered();
  }
  ~BackFile() { ::close(descriptor_); }
  BackFile(const BackFile&) = delete;
  BackFile& operator=(const BackFile&) = delete;

  // Passes bytes [begin, end) on, piece by piece.
  template <class Consume>
  void read(int64_t begin, int64_t end, const Consume& consume) {
    const int64_t page = page_bytes();
    for (int64_t at = begin / page * page; at < end;) {
      const int64_t wanted = std::min(kBackChunkBytes, (end - at + page - 1) / page * page);
      const int64_t got = read_at(at, wanted);
      if (got == 0 || (got % page != 0 && at + got < end)) fail_reading_back(path_, at + got, "the file ends there");
      const int64_t from = std::max(begin, at), to = std::min(end, at + got);
      if (to > from) consume(buffer_.get() + (from - at), to - from);
      at += got;
    }
  }

 private:
  void open_buffered() {
    is_buffered_ = true;
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_reading_back(path_, 0, std::strerror(errno));
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
  }

  int64_t read_at(int64_t offset, int64_t bytes) {
    for (;;) {
      const ssize_t got = ::pread(descriptor_, buffer_.get(), static_cast<size_t>(bytes), offset);
      if (got >= 0) return got;
      if (errno == EINVAL && !is_buffered_) {
        ::close(descriptor_);
        open_buffered();
      } else if (errno != EINTR) {
        fail_reading_back(path_, offset, std::strerror(errno));
      }
    }
  }

  std::filesystem::path path_;
  DirectMemory buffer_;
  int descriptor_ = -1;
  bool is_buffered_ = false;
};

void compare_range(const std::filesystem::path& path, const WrittenRange& range, uint64_t found) {
  if (found != range.checksum)
    throw UserError(
        concat("'", path.string(), "' does not hold what was written to it: ", range.what, " (bytes ", range.begin,
               " to ", range.begin + range.bytes, "): expected checksum ", hex64(range.checksum), ", read back ",
               hex64(found), ". The disk or the network file system has lost it"),
        ExitCode::kInputOutput);
}

}  // namespace

void read_back(const std::filesystem::path& path, const std::vector<WrittenRange>& ranges) {
  if (ranges.empty()) return;
  BackFile file(path);
  for (size_t first = 0; first < ranges.size();) {
    // Ranges that follow one another are read as one.
    size_t last = first;
    while (last + 1 < ranges.size() && ranges[last + 1].begin == ranges[last].begin + ranges[last].bytes) ++last;
    size_t current = first;
    std::optional<Hasher> hasher(std::in_place);
    int64_t done = 0;
    file.read(ranges[first].begin, ranges[last].begin + ranges[last].bytes, [&](const char* data, int64_t bytes) {
      while (bytes > 0) {
        const int64_t piece = std::min(bytes, ranges[current].bytes - done);
        hasher->update(data, static_cast<size_t>(piece));
        data += piece, bytes -= piece, done += piece;
        if (done < ranges[current].bytes) continue;
        compare_range(path, ranges[current], hasher->digest());
        hasher.emplace();
        ++current, done = 0;
      }
    });
    first = last + 1;
  }
}

}  // namespace espalier::store
