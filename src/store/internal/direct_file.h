// A file written once from front to back past the page cache.
//
// Writing a checkpoint through the page cache costs a core more time than its checksums, and pushes the token files
// that training reads out of memory. Where the file system does not take O_DIRECT, ordinary writes are used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

namespace espalier::store {

class DirectFile {
 public:
  // Creates or truncates. Failures here and below are UserErrors with path and reason.
  explicit DirectFile(const std::filesystem::path& path);
  ~DirectFile();  // without finish(), the file is left as it is
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  void append(const void* data, int64_t bytes);
  int64_t position() const { return written_ + staged_; }
  // Writes what is left and waits until it is on the disk.
  void finish();

 private:
  void flush(int64_t bytes);

  struct Free {
    void operator()(void* memory) const;
  };
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::unique_ptr<char, Free> staging_;
  int64_t staged_ = 0, written_ = 0;
};

}  // namespace espalier::store
