#include "data/record_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"

namespace espalier::data {
namespace {

// Index after the first record end at or after `from`; 0 if there is none, or if it is a CR at the very end whose LF
// may still come.
size_t first_end(std::string_view bytes, size_t from, bool ended) {
  const size_t at = bytes.find_first_of("\r\n", from);
  if (at == std::string_view::npos) return 0;
  if (bytes[at] == '\n') return at + 1;
  if (at + 1 == bytes.size()) return ended ? at + 1 : 0;
  return bytes[at + 1] == '\n' ? at + 2 : at + 1;
}

// Index after the last record end at or after `from`; a CR at the very end does not count.
size_t last_end(std::string_view bytes, size_t from) {
  const char* begin = bytes.data() + from;
  const auto after_last = [&](char end, size_t length) {
    const void* found = ::memrchr(begin, end, length);
    return found == nullptr ? size_t{0} : static_cast<size_t>(static_cast<const char*>(found) - bytes.data()) + 1;
  };
  const size_t length = bytes.size() - from;
  return std::max(after_last('\n', length), length == 0 ? 0 : after_last('\r', length - 1));
}

}  // namespace

std::vector<InputSlice> slices_of_shard(const std::vector<std::string>& files, const Shard& shard) {
  ESPALIER_CHECK(shard.count >= 1 && shard.index >= 0 && shard.index < shard.count);
  std::vector<InputSlice> slices;
  if (shard.count == 1) {
    for (size_t file = 0; file < files.size(); ++file) slices.push_back({file, 0, kToTheEnd});
    return slices;
  }
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (const std::string& file : files) {
    std::error_code error;
    if (file == "-" || (std::filesystem::exists(file, error) && !std::filesystem::is_regular_file(file, error)))
      throw UserError(concat("--shard ", shard.index, "/", shard.count, ": ", shown_name(file),
                             " cannot be divided between machines; only files can."),
                      ExitCode::kUsage);
    sizes.push_back(file_size_bytes(file));
    total += sizes.back();
  }
  const auto boundary = [&](int64_t index) {
    return static_cast<int64_t>(static_cast<__int128>(total) * index / shard.count);
  };
  const int64_t from = boundary(shard.index), to = boundary(shard.index + 1);
  int64_t start = 0;
  for (size_t file = 0; file < files.size(); start += sizes[file++]) {
    const int64_t size = sizes[file];
    const int64_t begin = std::max<int64_t>(0, from - start), end = std::min(size, to - start);
    if (size == 0) continue;
    if (is_compressed(files[file])) {
      if (from <= start && start < to) slices.push_back({file, 0, kToTheEnd});
    } else if (begin < end) {
      slices.push_back({file, begin, end == size ? kToTheEnd : end});
    }
  }
  return slices;
}

int64_t total_bytes(const std::vector<std::string>& files, const std::vector<InputSlice>& slices) {
  int64_t total = 0;
  bool known = true;
  for (const InputSlice& slice : slices) {
    const std::string& file = files[slice.file];
    if (file == "-") {
      known = false;
      continue;
    }
    const int64_t size = file_size_bytes(file);  // also finds, before any work, the file that does not exist
    if (!std::filesystem::is_regular_file(file)) known = false;
    total += std::min(slice.end, size) - slice.begin;
  }
  return known ? total : 0;
}

RecordReader::RecordReader(std::vector<std::string> files, std::vector<InputSlice> slices, int64_t block_bytes,
                           int64_t max_record_bytes, int64_t most_skipped_bytes)
    : files_(std::move(files)),
      slices_(std::move(slices)),
      block_bytes_(static_cast<size_t>(block_bytes)),
      max_record_bytes_(static_cast<size_t>(max_record_bytes)),
      most_skipped_bytes_(most_skipped_bytes) {}

bool RecordReader::open_next_slice() {
  if (next_slice_ == slices_.size()) return false;
  slice_ = slices_[next_slice_++];
  pending_.clear();
  stream_ended_ = false;
  reported_bytes_ = 0;
  const std::string& file = files_[slice_.file];
  if (slice_.begin == 0) {
    stream_ = open_input(file);
    position_ = 0;
  } else {
    // One byte early: the record that begins at slice_.begin exactly has its predecessor's end there.
    stream_ = open_plain_input_at(file, slice_.begin - 1);
    position_ = slice_.begin - 1;
    RecordBlock before;
    skip_record(before);
  }
  return true;
}

// Reads until `pending_` holds `size` bytes or the stream ends.
void RecordReader::fill(size_t size) {
  size_t held = pending_.size();
  if (held >= size || stream_ended_) return;
  pending_.resize(size);
  while (held < size) {
    const size_t got = stream_->read(pending_.data() + held, size - held);
    if (got == 0) {
      stream_ended_ = true;
      break;
    }
    held += got;
  }
  pending_.resize(held);
}

// Where to cut `pending_` so that it holds whole records of this slice; 0 if not even one is complete.
size_t RecordReader::find_cut(size_t searched) const {
  if (slice_.end != kToTheEnd) {
    // The slice's last record is the last that begins before its end.
    const size_t left = static_cast<size_t>(slice_.end - position_);
    if (left <= pending_.size()) {
      const size_t cut = first_end(pending_, left - 1, stream_ended_);
      if (cut != 0) return cut;
    }
  }
  return stream_ended_ ? pending_.size() : last_end(pending_, searched);
}

// Passes over one record, however long, and notes its length.
void RecordReader::skip_record(RecordBlock& block) {
  for (;;) {
    fill(block_bytes_);
    size_t passed = first_end(pending_, 0, stream_ended_);
    const bool done = passed != 0 || stream_ended_;
    if (passed == 0) passed = pending_.size();
    if (!done && pending_.ends_with('\r')) --passed;
    pending_.erase(0, passed);
    position_ += static_cast<int64_t>(passed);
    block.skipped_bytes += static_cast<int64_t>(passed);
    if (done) return;
    if (block.skipped_bytes > most_skipped_bytes_)
      throw UserError(
          concat("'", shown_name(files_[slice_.file]), "': the record at byte ", format_count(block.first_byte),
                 " continues for more than ", format_count(most_skipped_bytes_),
                 " bytes without the end of a line, after ", format_count(stream_->consumed_bytes()),
                 " bytes of the file. Expected JSONL, one object a ", "line; leave the file out."),
          ExitCode::kBadData);
  }
}

void RecordReader::take(RecordBlock& block, size_t size) {
  std::string rest = pending_.substr(size);
  pending_.resize(size);
  block.bytes = std::move(pending_);
  pending_ = std::move(rest);
  position_ += static_cast<int64_t>(size);
}

bool RecordReader::next(RecordBlock& block) {
  for (;;) {
    if (stream_ == nullptr && !open_next_slice()) return false;
    block = RecordBlock{};
    block.file = slice_.file;
    block.first_byte = position_;
    size_t wanted = block_bytes_, searched = 0;
    if (position_ < slice_.end) {
      fill(wanted);
      size_t cut = find_cut(searched);
      while (cut == 0 && !pending_.empty() && pending_.size() <= max_record_bytes_) {
        searched = pending_.size() - 1;  // that byte may be a CR
        wanted = std::min(2 * wanted, max_record_bytes_ + 2);
        fill(wanted);
        cut = find_cut(searched);
      }
      if (cut != 0)
        take(block, cut);
      else if (!pending_.empty())
        skip_record(block);
    }
    if (block.bytes.empty() && block.skipped_bytes == 0) {
      stream_.reset();
      continue;
    }
    block.input_bytes = stream_->consumed_bytes() - reported_bytes_;
    reported_bytes_ = stream_->consumed_bytes();
    return true;
  }
}

bool RecordCursor::next(std::string_view& record) {
  if (at_ >= bytes_.size()) return false;
  if (count_ == 0 || next_line_feed_ < at_) next_line_feed_ = std::min(bytes_.find('\n', at_), bytes_.size());
  const std::string_view until_line_feed = bytes_.substr(at_, next_line_feed_ - at_);
  const size_t carriage_return = until_line_feed.find('\r');
  record = until_line_feed.substr(0, carriage_return);
  at_ += record.size() + 1;
  if (carriage_return != std::string_view::npos && at_ == next_line_feed_ && at_ < bytes_.size()) ++at_;  // CRLF
  ++count_;
  return true;
}

int64_t count_records(const std::string& path, int64_t size) {
  const MappedFile file(path);
  RecordCursor cursor({reinterpret_cast<const char*>(file.data()), std::min(file.size(), static_cast<size_t>(size))});
  std::string_view record;
  while (cursor.next(record)) {
  }
  return cursor.count();
}

}  // namespace espalier::data
