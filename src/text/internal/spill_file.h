// A nameless temporary file that grows at its end and is read anywhere. It vanishes with its owner, also after a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace espalier::text::internal {

class SpillFile {
 public:
  // Creates the file in `folder`; nothing there can be seen of it. Failures are UserErrors that name the folder.
  explicit SpillFile(const std::filesystem::path& folder);
  ~SpillFile();
  SpillFile(SpillFile&& other) noexcept;
  SpillFile& operator=(SpillFile&& other) = delete;

  // Kept in memory until flush(), or until there is enough to write.
  void append(const void* bytes, size_t size);
  void flush();
  // The position of the next byte.
  int64_t size() const { return written_bytes_ + static_cast<int64_t>(pending_.size()); }
  // Exactly `size` bytes, all of them flushed.
  void read_at(char* bytes, size_t size, int64_t offset) const;

 private:
  [[noreturn]] void fail(const char* action) const;

  std::string folder_;
  int descriptor_ = -1;
  std::string pending_;
  int64_t written_bytes_ = 0;
};

}  // namespace espalier::text::internal
