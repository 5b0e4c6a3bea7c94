#include "data/plugin/parquet_rows.h"

#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/json/api.h>
#include <parquet/file_reader.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "data/plugin/arrow_json.h"

namespace espalier::data {
namespace {

constexpr int64_t kRowsOfBatch = 256;

void must(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}
template <class Value>
Value must(arrow::Result<Value> result) {
  must(result.status());
  return std::move(result).ValueUnsafe();
}

std::shared_ptr<arrow::DataType> type_of(const nlohmann::ordered_json& words);

std::vector<std::shared_ptr<arrow::Field>> fields_of(const nlohmann::ordered_json& columns) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  for (const auto& [name, words] : columns.items()) fields.push_back(arrow::field(name, type_of(words)));
  return fields;
}

std::shared_ptr<arrow::DataType> type_of(const nlohmann::ordered_json& words) {
  if (words.is_array()) return arrow::list(type_of(words.at(0)));
  if (words.is_object()) return arrow::struct_(fields_of(words));
  if (words == "int64") return arrow::int64();
  if (words == "double") return arrow::float64();
  if (words == "bool") return arrow::boolean();
  return arrow::utf8();
}

arrow::Compression::type compression_of(const std::string& name) {
  if (name == "none") return arrow::Compression::UNCOMPRESSED;
  if (name == "gzip") return arrow::Compression::GZIP;
  if (name == "snappy") return arrow::Compression::SNAPPY;
  return arrow::Compression::ZSTD;
}

}  // namespace

RowReader::RowReader(const std::string& path) {
  parquet::ReaderProperties reading;
  reading.enable_buffered_stream();
  parquet::ArrowReaderProperties rows;
  rows.set_batch_size(kRowsOfBatch);
  rows.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  must(builder.OpenFile(path, /*memory_map=*/false, reading));
  file_ = must(builder.properties(rows)->Build());
  std::shared_ptr<arrow::Schema> schema;
  must(file_->GetSchema(&schema));
  const std::string strange = column_without_json(*schema);
  if (!strange.empty())
    throw std::runtime_error("column " + strange + " has a type that is not supported. Write the file without it.");
}

// Arrow does not say of which column a group's data are damaged: each is read alone until one fails.
void RowReader::fail(const arrow::Status& status) const {
  const std::string place = "row group " + std::to_string(group_);
  const auto& columns = *file_->parquet_reader()->metadata()->schema();
  for (int column = 0; column < columns.num_columns(); ++column) {
    const auto alone = file_->ReadRowGroup(group_, {column});
    if (!alone.ok())
      throw std::runtime_error(place + ", column " + columns.Column(column)->path()->ToDotString() + ": " +
                               alone.status().message());
  }
  throw std::runtime_error(place + ": " + status.message());
}

bool RowReader::open_next_group() {
  if (group_ >= file_->num_row_groups()) return false;  // the end, asked for again
  const auto metadata = file_->parquet_reader()->metadata();
  if (group_ >= 0) bytes_before_ += metadata->RowGroup(group_)->total_compressed_size();
  rows_read_ = 0;
  if (++group_ >= file_->num_row_groups()) return false;
  auto rows = file_->GetRecordBatchReader({group_});
  if (!rows.ok()) fail(rows.status());
  rows_ = std::move(rows).ValueUnsafe();
  return true;
}

const std::string& RowReader::read() {
  lines_.clear();
  while (lines_.empty()) {
    if (rows_ == nullptr && !open_next_group()) break;
    std::shared_ptr<arrow::RecordBatch> batch;
    const arrow::Status status = rows_->ReadNext(&batch);
    if (!status.ok()) fail(status);
    if (batch == nullptr) {
      rows_.reset();
      continue;
    }
    for (int64_t row = 0; row < batch->num_rows(); ++row) {
      lines_ += '{';
      for (int column = 0; column < batch->num_columns(); ++column) {
        if (column > 0) lines_ += ", ";
        append_json_string(batch->column_name(column), lines_);
        lines_ += ": ";
        append_json(*batch->column(column), row, lines_);
      }
      lines_ += "}\n";
    }
    rows_read_ += batch->num_rows();
  }
  return lines_;
}

int64_t RowReader::consumed_bytes() const {
  if (group_ < 0 || group_ >= file_->num_row_groups()) return bytes_before_;
  const auto group = file_->parquet_reader()->metadata()->RowGroup(group_);
  const double share = group->num_rows() == 0 ? 1 : static_cast<double>(rows_read_) / group->num_rows();
  return bytes_before_ + static_cast<int64_t>(share * group->total_compressed_size());
}

RowWriter::RowWriter(const std::string& path, const std::string& columns, const std::string& compression)
    : schema_(arrow::schema(fields_of(nlohmann::ordered_json::parse(columns)))),
      sink_(must(arrow::io::FileOutputStream::Open(path))) {
  parquet::WriterProperties::Builder properties;
  properties.compression(compression_of(compression));
  file_ = must(parquet::arrow::FileWriter::Open(*schema_, arrow::default_memory_pool(), sink_, properties.build()));
}

void RowWriter::write(std::string_view lines) {
  auto reading = arrow::json::ReadOptions::Defaults();
  reading.use_threads = false;
  reading.block_size = static_cast<int32_t>(lines.size());
  auto parsing = arrow::json::ParseOptions::Defaults();
  parsing.explicit_schema = schema_;
  parsing.unexpected_field_behavior = arrow::json::UnexpectedFieldBehavior::Error;
  auto bytes = std::make_shared<arrow::io::BufferReader>(std::make_shared<arrow::Buffer>(
      reinterpret_cast<const uint8_t*>(lines.data()), static_cast<int64_t>(lines.size())));
  const auto reader =
      must(arrow::json::TableReader::Make(arrow::default_memory_pool(), std::move(bytes), reading, parsing));
  const std::shared_ptr<arrow::Table> table = must(reader->Read());
  must(file_->WriteTable(*table, std::max<int64_t>(table->num_rows(), 1)));
}

void RowWriter::finish() {
  must(file_->Close());
  must(sink_->Close());
}

}  // namespace espalier::data
