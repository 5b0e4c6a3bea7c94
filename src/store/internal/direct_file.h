// Writes ranges of a file past the page cache, each from front to back.
//
// Writing a checkpoint through the page cache costs a core more time than its checksums, and pushes the token files
// that training reads out of memory. Only the ends of a range, which are not whole pages, go through it, or are kept
// for the one who writes those pages where other processes write the neighbouring ranges. Where the file system does
// not take O_DIRECT, ordinary writes are used. A thread of its own waits for the disk, while the caller makes the next
// bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "store/internal/direct_memory.h"

namespace espalier::store {

// Of one process that writes a checkpoint or a folder of weights: while one waits for the disk, another has bytes to
// make.
inline constexpr int kWriterThreads = 2;

// What one process may write without looking at others: a page of this machine's memory, and no less than O_DIRECT
// wants of addresses, offsets and lengths on any disk in use.
int64_t page_bytes();

// An end of a range that is not a whole page.
struct PageEdge {
  int64_t offset = 0;  // in the file
  std::string bytes;
};

class DirectFile {
 public:
  // Creates the file unless it exists; keeps what is in it. It is `file_bytes` long from then on, with room on the
  // disk where the file system can promise that: two writers that make a file longer wait for each other (ext4: half
  // the speed of one). Failures here and below are UserErrors with path and reason; that a write failed is reported by
  // a later call, at the latest by finish().
  DirectFile(const std::filesystem::path& path, int64_t file_bytes);
  ~DirectFile();  // without finish(), the file is left as it is
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Where the next append goes; at first the start of the file.
  void seek(int64_t offset);
  void append(const void* data, int64_t bytes);
  int64_t position() const { return filling_.end; }
  // Writes what is left. It may not be on the disk yet.
  void flush();
  // Writes what is left and waits until it is on the disk.
  void finish();

  // From here on only whole pages are written; the ends of ranges are kept for take_edges(), after finish(). For files
  // that several processes write.
  void keep_edges() { keeps_edges_ = true; }
  std::vector<PageEdge> take_edges() { return std::move(edges_); }

 private:
  // Represents the file from `base`, a multiple of the page size; [begin, end) waits in it.
  struct Staging {
    DirectMemory memory;
    int64_t base = 0, begin = 0, end = 0;
  };
  void write_behind();
  void write(const Staging& staging);

  std::filesystem::path path_;
  int direct_ = -1, buffered_ = -1;  // two descriptors of the file; no direct one where it cannot be had
  Staging filling_, writing_;
  bool keeps_edges_ = false;
  std::vector<PageEdge> edges_;
  std::future<void> pending_;  // uses all of the above but filling_
};

}  // namespace espalier::store
