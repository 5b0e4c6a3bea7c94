// Rows of fields between tabs, as Python's csv.reader(file, delimiter="\t") reads them: a field that begins with a
// quotation mark ends with one, holds tabs and line ends, and two in it are one. What the file holds may be compressed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/input_stream.h"

namespace espalier::retrieval {

class TabFile {
 public:
  explicit TabFile(const std::string& path);

  // False at the end. Empty lines are skipped. An unclosed quotation mark is a UserError (kBadData).
  bool next(std::vector<std::string>& fields);
  int64_t line() const { return first_line_; }  // from 1, in which the last row began
  int64_t consumed_bytes() const { return stream_->consumed_bytes(); }
  // "questions.tsv, line 7: expected ..., found ..." (kBadData), of the last row.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  bool take(char& byte);

  std::string path_, buffer_;
  std::unique_ptr<data::InputStream> stream_;
  size_t at_ = 0;
  int64_t line_ = 1, first_line_ = 0;
};

}  // namespace espalier::retrieval
