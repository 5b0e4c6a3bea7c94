// A file of records in the order of their `node`, mapped: what a pass decided, looked up by any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "base/file.h"

namespace espalier::curate {

template <class Record>
class SortedRecords {
 public:
  SortedRecords() = default;
  explicit SortedRecords(const std::filesystem::path& path) : file_(path) {}

  std::span<const Record> all() const {
    if (!file_ || file_->size() == 0) return {};
    return {reinterpret_cast<const Record*>(file_->data()), file_->size() / sizeof(Record)};
  }
  // Those with first <= node < end.
  std::span<const Record> between(uint64_t first, uint64_t end) const {
    const auto less = [](const Record& record, uint64_t node) { return record.node < node; };
    const std::span<const Record> records = all();
    const auto begin = std::lower_bound(records.begin(), records.end(), first, less);
    return {begin, std::lower_bound(begin, records.end(), end, less)};
  }
  std::span<const Record> of(uint64_t node) const { return between(node, node + 1); }

 private:
  std::optional<MappedFile> file_;
};

}  // namespace espalier::curate
