// Sorts records of a fixed size on disk: every deduplication that must see all documents is built on it.
//
//   RecordSorter<Edge> sorter(folder, "edges", memory_bytes);
//   sorter.add(edge);                                          // any order
//   sorter.drain([](const Edge& edge) { ... });                // in order, once; equal records are adjacent
//
// A buffer of at most `memory_bytes` is sorted and written as a run whenever it is full; runs are merged 64 at a time.
// n records cost O(n log n) comparisons and ceil(log_64(n * size / memory)) reads and writes of all of them. A buffer
// that never fills is never written. The order is that of operator<, which must compare all members, so that the result
// depends on the records alone and never on the memory. Knuth, The Art of Computer Programming 3, 5.4.
#pragma once

#include <algorithm>
#include <deque>
#include <filesystem>
#include <queue>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace espalier::curate {

inline constexpr size_t kBufferedRecords = 16384;  // of a run that is read alone

// A sorted run on disk, read front to back through a buffer.
template <class Record>
class RecordRun {
 public:
  RecordRun(const std::filesystem::path& path, size_t records_of_buffer)
      : file_(path), left_(static_cast<size_t>(file_.size_bytes()) / sizeof(Record)), most_(records_of_buffer) {}
  bool next(Record& record) {
    if (at_ == buffer_.size()) {
      if (left_ == 0) return false;
      buffer_.resize(std::min(left_, most_));
      file_.read_at(buffer_.data(), buffer_.size() * sizeof(Record), offset_);
      offset_ += static_cast<int64_t>(buffer_.size() * sizeof(Record));
      left_ -= buffer_.size();
      at_ = 0;
    }
    record = buffer_[at_++];
    return true;
  }

 private:
  InputFile file_;
  size_t left_, most_, at_ = 0;
  int64_t offset_ = 0;
  std::vector<Record> buffer_;
};

// Records appended to a file through a buffer, in an order that the caller keeps.
template <class Record>
class RecordWriter {
 public:
  explicit RecordWriter(const std::filesystem::path& path) : file_(path) { buffer_.reserve(kRecords); }
  void add(const Record& record) {
    buffer_.push_back(record);
    if (buffer_.size() == kRecords) flush();
  }
  void close() {
    flush();
    file_.close();
  }

 private:
  static constexpr size_t kRecords = std::max<size_t>(1, (size_t{256} << 10) / sizeof(Record));
  void flush() {
    if (!buffer_.empty()) file_.write(buffer_.data(), buffer_.size() * sizeof(Record));
    buffer_.clear();
  }
  OutputFile file_;
  std::vector<Record> buffer_;
};

template <class Record>
class RecordSorter {
  static_assert(std::is_trivially_copyable_v<Record>);

 public:
  RecordSorter(std::filesystem::path folder, std::string name, int64_t memory_bytes)
      : folder_(std::move(folder)),
        name_(std::move(name)),
        // While the buffer grows, the old one and the new one exist: together no more than memory_bytes.
        most_(std::max<size_t>(kLeastRecords, static_cast<size_t>(memory_bytes) / sizeof(Record) * 2 / 3)) {}
  ~RecordSorter() {
    for (const std::filesystem::path& run : runs_) remove(run);
  }
  RecordSorter(const RecordSorter&) = delete;
  RecordSorter& operator=(const RecordSorter&) = delete;

  void add(const Record& record) {
    if (buffer_.size() == most_) spill();
    if (buffer_.size() == buffer_.capacity())
      buffer_.reserve(std::min(most_, std::max(kLeastRecords, buffer_.size() * 2)));
    buffer_.push_back(record);
    ++num_records_;
  }
  int64_t num_records() const { return num_records_; }
  int64_t num_spilled_runs() const { return num_spilled_; }

  template <class Take>
  void drain(Take take) {
    if (runs_.empty()) {
      std::sort(buffer_.begin(), buffer_.end());
      for (const Record& record : buffer_) take(record);
      free_buffer();
      return;
    }
    if (!buffer_.empty()) spill();
    free_buffer();
    while (runs_.size() > kFanIn) {
      const std::filesystem::path path = next_path();
      RecordWriter<Record> writer(path);
      merge(kFanIn, [&](const Record& record) { writer.add(record); });
      writer.close();
      runs_.push_back(path);
    }
    merge(runs_.size(), take);
  }

 private:
  static constexpr size_t kFanIn = 64, kLeastRecords = 16;

  static void remove(const std::filesystem::path& path) {
    std::error_code ignored;  // the folder goes away as a whole
    std::filesystem::remove(path, ignored);
  }
  std::filesystem::path next_path() { return folder_ / concat(name_, "-", num_paths_++); }
  void free_buffer() { std::vector<Record>().swap(buffer_); }

  void spill() {
    std::sort(buffer_.begin(), buffer_.end());
    const std::filesystem::path path = next_path();
    OutputFile file(path);
    file.write(buffer_.data(), buffer_.size() * sizeof(Record));
    file.close();
    runs_.push_back(path);
    buffer_.clear();
    ++num_spilled_;
  }

  // The oldest `count` runs, which then go away.
  template <class Take>
  void merge(size_t count, Take take) {
    struct Head {
      Record record;
      size_t run;
      bool operator<(const Head& other) const { return other.record < record; }  // the least on top
    };
    const size_t records_of_buffer = std::max<size_t>(1, std::min(most_ / count, (size_t{1} << 20) / sizeof(Record)));
    std::vector<RecordRun<Record>> readers;
    std::priority_queue<Head> heads;
    readers.reserve(count);
    for (size_t run = 0; run < count; ++run) {
      readers.emplace_back(runs_[run], records_of_buffer);
      Head head;
      head.run = run;
      if (readers[run].next(head.record)) heads.push(head);
    }
    while (!heads.empty()) {
      Head head = heads.top();
      heads.pop();
      take(static_cast<const Record&>(head.record));
      if (readers[head.run].next(head.record)) heads.push(head);
    }
    readers.clear();
    for (size_t run = 0; run < count; ++run) {
      remove(runs_.front());
      runs_.pop_front();
    }
  }

  std::filesystem::path folder_;
  std::string name_;
  size_t most_;
  std::vector<Record> buffer_;
  std::deque<std::filesystem::path> runs_;
  int64_t num_records_ = 0, num_spilled_ = 0, num_paths_ = 0;
};

}  // namespace espalier::curate
