// Rows of Parquet files as JSON lines, by Arrow. What fails is a std::runtime_error with all of it but the file's name.
#pragma once

#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include <memory>
#include <string>
#include <string_view>

namespace espalier::data {

// One row group after another, a few hundred rows at a time, so that memory does not grow with the row groups.
class RowReader {
 public:
  explicit RowReader(const std::string& path);
  // The next rows; empty at the end.
  const std::string& read();
  int64_t consumed_bytes() const;

 private:
  bool open_next_group();
  [[noreturn]] void fail(const arrow::Status& status) const;

  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::unique_ptr<arrow::RecordBatchReader> rows_;  // of the group
  int group_ = -1;
  int64_t rows_read_ = 0;  // of the group
  int64_t bytes_before_ = 0;
  std::string lines_;
};

class RowWriter {
 public:
  RowWriter(const std::string& path, const std::string& columns, const std::string& compression);
  void write(std::string_view lines);
  void finish();

 private:
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::io::FileOutputStream> sink_;
  std::unique_ptr<parquet::arrow::FileWriter> file_;
};

}  // namespace espalier::data
