// The lines of text files, their ends included: what Hugging Face tokenizers' train(files) takes for documents.
//
//   LineReader reader({"a.txt", "b.txt.gz", "-"});
//   for (std::string_view line; reader.next(line);) ...
//
// A line ends after LF and nowhere else; the last one of a file needs no end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/input_stream.h"

namespace espalier::data {

class LineReader {
 public:
  explicit LineReader(std::vector<std::string> files) : files_(std::move(files)) {}

  // Valid until the next call; false at the end. A line of over kMaxRecordBytes is a UserError, as is a byte-order
  // mark.
  bool next(std::string_view& line);
  // Bytes of the files, as they are on disk, that were read so far.
  int64_t consumed_bytes() const { return finished_bytes_ + (stream_ != nullptr ? stream_->consumed_bytes() : 0); }

 private:
  bool fill();
  bool open_next_file();

  std::vector<std::string> files_;
  size_t next_file_ = 0;
  std::unique_ptr<InputStream> stream_;
  std::string buffer_;
  size_t at_ = 0;  // of the next line in the buffer
  int64_t finished_bytes_ = 0;
  bool is_at_start_ = false;  // of a file
};

}  // namespace espalier::data
