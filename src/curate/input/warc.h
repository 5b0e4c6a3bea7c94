// WARC and WET files: their records one after another, and the document of one.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "curate/document.h"
#include "data/input_stream.h"

namespace espalier::curate {

class WarcReader {
 public:
  explicit WarcReader(const std::string& file);
  // Appends the next record, headers and content, to `bytes`. False at the end. A file that is not WARC, or is cut off,
  // is a UserError that names it.
  bool next(std::string& bytes);
  int64_t consumed_bytes() const { return stream_->consumed_bytes(); }

 private:
  bool fill() { return data::read_on(*stream_, buffer_); }
  [[noreturn]] void fail(const std::string& what) const;

  std::string file_;
  std::unique_ptr<data::InputStream> stream_;
  std::string buffer_;
  int64_t num_records_ = 0;
};

// Responses that are HTML pages, and conversions (WET), which are text; url and date become metadata. False, with the
// reason, for any other record.
bool read_warc_record(std::string_view record, Document& document, std::string& reason, int64_t& num_replaced);

}  // namespace espalier::curate
