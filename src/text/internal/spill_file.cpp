#include "text/internal/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace espalier::text::internal {
namespace {
constexpr size_t kPendingBytes = size_t{64} << 10;
}

SpillFile::SpillFile(const std::filesystem::path& folder) : folder_(folder) {
  std::string path = folder / ".espalier-words-XXXXXX";
  descriptor_ = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail("create");
  ::unlink(path.c_str());
}

SpillFile::~SpillFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

SpillFile::SpillFile(SpillFile&& other) noexcept
    : folder_(std::move(other.folder_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      pending_(std::move(other.pending_)),
      written_bytes_(other.written_bytes_) {}

void SpillFile::fail(const char* action) const {
  throw UserError(concat("cannot ", action, " a temporary file for word counts in ", folder_, ": ",
                         std::strerror(errno), ". Free some space there, or raise --memory so that none is needed."),
                  ExitCode::kInputOutput);
}

void SpillFile::append(const void* bytes, size_t size) {
  pending_.append(static_cast<const char*>(bytes), size);
  if (pending_.size() >= kPendingBytes) flush();
}

void SpillFile::flush() {
  for (size_t done = 0; done < pending_.size();) {
    const ssize_t count = ::write(descriptor_, pending_.data() + done, pending_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write");
    done += static_cast<size_t>(count);
  }
  written_bytes_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
}

void SpillFile::read_at(char* bytes, size_t size, int64_t offset) const {
  for (size_t done = 0; done < size;) {
    const ssize_t count = ::pread(descriptor_, bytes + done, size - done, offset + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read");
    ESPALIER_CHECK(count > 0, "the file of word counts ends before byte ", offset + static_cast<int64_t>(size));
    done += static_cast<size_t>(count);
  }
}

}  // namespace espalier::text::internal
