// Writes ranges of a file past the page cache, each from front to back.
//
// Writing a checkpoint through the page cache costs a core more time than its checksums, and pushes the token files
// that training reads out of memory. Only the ends of a range, which are not whole pages, go through it, so that other
// processes may write the neighbouring ranges of the same file at the same time. Where the file system does not take
// O_DIRECT, ordinary writes are used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

namespace espalier::store {

class DirectFile {
 public:
  // Creates the file unless it is there; keeps what is in it. Failures here and below are UserErrors with path and
  // reason.
  explicit DirectFile(const std::filesystem::path& path);
  ~DirectFile();  // without finish(), the file is left as it is
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Where the next append goes; at first the start of the file.
  void seek(int64_t offset);
  void append(const void* data, int64_t bytes);
  int64_t position() const { return end_; }
  // Writes what is left and waits until it is on the disk.
  void finish();

 private:
  void flush();

  struct Free {
    void operator()(void* memory) const;
  };
  std::filesystem::path path_;
  int direct_ = -1, buffered_ = -1;  // two descriptors of the file; no direct one where it cannot be had
  std::unique_ptr<char, Free> staging_;
  // The staging memory stands for the file from `base_`, a multiple of the page size; [begin_, end_) waits in it.
  int64_t base_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace espalier::store
