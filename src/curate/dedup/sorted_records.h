// A file of records in the order of their `node`, mapped: what a pass decided, looked up by any thread.
//
// Memory: what the last lookups touched, at most some 64 MiB, whatever the size of the file.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/file.h"

namespace espalier::curate {

template <class Record>
class SortedRecords {
 public:
  SortedRecords() = default;
  explicit SortedRecords(const std::filesystem::path& path) : file_(std::make_unique<Mapped>(path)) {}

  int64_t size() const { return static_cast<int64_t>(all().size()); }
  // Those with first <= node < end.
  std::span<const Record> between(uint64_t first, uint64_t end) const {
    release_sometimes();
    const auto less = [](const Record& record, uint64_t node) { return record.node < node; };
    const std::span<const Record> records = all();
    const auto begin = std::lower_bound(records.begin(), records.end(), first, less);
    return {begin, std::lower_bound(begin, records.end(), end, less)};
  }
  std::span<const Record> of(uint64_t node) const { return between(node, node + 1); }

 private:
  struct Mapped {
    explicit Mapped(const std::filesystem::path& path) : file(path) {}
    MappedFile file;
    std::atomic<uint32_t> num_lookups = 0;
  };
  // A lookup reads a few pages, of which the system may bring 16 each (of 4 KiB).
  static constexpr uint32_t kLookups = 128;
  static constexpr size_t kSmall = size_t{32} << 20;

  std::span<const Record> all() const {
    if (!file_ || file_->file.size() == 0) return {};
    return {reinterpret_cast<const Record*>(file_->file.data()), file_->file.size() / sizeof(Record)};
  }
  void release_sometimes() const {
    if (!file_ || file_->file.size() < kSmall) return;
    if (file_->num_lookups.fetch_add(1, std::memory_order_relaxed) % kLookups == kLookups - 1) file_->file.release();
  }

  std::unique_ptr<Mapped> file_;
};

}  // namespace espalier::curate
