// Input files cut into blocks of whole records, and the records of a block.
//
// A record ends at LF, at CRLF and at a lone CR, as Python's text files have it, and nowhere else (not at U+2028); the
// last one of a file needs no end. The reader only looks for the last end in each block, so that one thread can feed
// many: counting lines and parsing are left to whoever takes the block.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/input_stream.h"

namespace espalier::data {

// A record longer than this is malformed: it is skipped without being held in memory.
inline constexpr int64_t kMaxRecordBytes = int64_t{256} << 20;
// A record longer than this ends the reading of its file: what is that long (a decompression bomb, a disk image) is
// not JSONL, and skipping it would take forever.
inline constexpr int64_t kMostSkippedBytes = int64_t{4} << 30;
inline constexpr int64_t kBlockBytes = int64_t{256} << 10;

// The records of file `file` (an index into the list of inputs) whose first byte is in [begin, end).
struct InputSlice {
  size_t file = 0;
  int64_t begin = 0, end = 0;  // end kToTheEnd: however long the file is
};
inline constexpr int64_t kToTheEnd = INT64_MAX;

struct Shard {
  int64_t index = 0, count = 1;
};

// The part of the input that shard `index` of `count` reads. The bytes of all files, as they are on disk, are put end
// to end and cut into equal ranges; a record belongs to the range its first byte is in, a compressed file whole to the
// range its first byte is in. So the shards, in order, are the whole input, and no node reads another's part.
std::vector<InputSlice> slices_of_shard(const std::vector<std::string>& files, const Shard& shard);

// Bytes on disk of the slices; 0 if one of them has no size (standard input, a pipe).
int64_t total_bytes(const std::vector<std::string>& files, const std::vector<InputSlice>& slices);

struct RecordBlock {
  std::string bytes;  // whole records with their ends
  size_t file = 0;
  int64_t first_byte = 0;     // where the block begins in the decompressed file
  int64_t input_bytes = 0;    // bytes read from disk for this block (for progress)
  int64_t skipped_bytes = 0;  // not 0: the block represents one record of this length, too long to be kept
};

class RecordReader {
 public:
  RecordReader(std::vector<std::string> files, std::vector<InputSlice> slices, int64_t block_bytes = kBlockBytes,
               int64_t max_record_bytes = kMaxRecordBytes, int64_t most_skipped_bytes = kMostSkippedBytes);

  // False at the end of the last slice. A block never spans files.
  bool next(RecordBlock& block);

 private:
  bool open_next_slice();
  void fill(size_t size);
  size_t find_cut(size_t searched) const;
  void skip_record(RecordBlock& block);
  void take(RecordBlock& block, size_t size);

  std::vector<std::string> files_;
  std::vector<InputSlice> slices_;
  size_t block_bytes_, max_record_bytes_;
  int64_t most_skipped_bytes_;
  size_t next_slice_ = 0;
  InputSlice slice_;
  std::unique_ptr<InputStream> stream_;
  std::string pending_;   // read and not given out yet
  int64_t position_ = 0;  // of pending_[0] in the decompressed file
  bool stream_ended_ = false;
  int64_t reported_bytes_ = 0;
};

// Walks the records of a block; their ends are not part of them.
//
//   RecordCursor cursor(block.bytes);
//   while (cursor.next(record)) ...
class RecordCursor {
 public:
  explicit RecordCursor(std::string_view bytes) : bytes_(bytes) {}
  bool next(std::string_view& record);
  // Records given so far.
  int64_t count() const { return count_; }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
  size_t next_line_feed_ = 0;  // known up to here, so that a file of CRs is not searched again for every record
  int64_t count_ = 0;
};

// How many records end in the first `size` bytes of an uncompressed file.
int64_t count_records(const std::string& path, int64_t size);

}  // namespace espalier::data
