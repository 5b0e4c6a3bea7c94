// Parquet files through libespalier_parquet.so (docs/data-path.md), which scripts/setup --parquet builds.
//
// A row is read and written as a JSON line: what reads JSONL reads Parquet.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "data/input_stream.h"
#include "data/parquet_table.h"

namespace espalier::data {

std::filesystem::path parquet_plugin_path();
bool has_parquet();

// Its rows as lines. A UserError names the file and, of what is damaged, row group and column; or it says that the
// plugin is missing.
std::unique_ptr<InputStream> open_parquet(const std::string& path);

// The columns that hold the values of JSON objects: numbers, truths, texts, lists and structures of these. Where the
// values of a key agree on none of them, or hold what Parquet has no name for, the column holds their JSON as text: so
// do fractions among integers that a double would change (beyond 2^53).
class ParquetColumns {
 public:
  void add(std::string_view key, std::string_view json);
  bool empty() const { return types_.empty(); }
  // Whether the values of the key are to be written as text that holds their JSON.
  bool is_json_text(std::string_view key) const;
  bool has_json_text() const;       // of any key
  std::string description() const;  // as ParquetTable::create takes it

 private:
  nlohmann::ordered_json types_ = nlohmann::ordered_json::object();
};

class ParquetFileWriter {
 public:
  // `name`: what messages call the file. `compression`: none, snappy, gzip, zstd.
  ParquetFileWriter(const std::string& path, std::string name, const ParquetColumns& columns,
                    const std::string& compression);
  ~ParquetFileWriter();
  ParquetFileWriter(const ParquetFileWriter&) = delete;
  ParquetFileWriter& operator=(const ParquetFileWriter&) = delete;

  void write_row_group(std::string_view lines);
  void finish();

 private:
  const ParquetTable& table_;
  std::string name_;
  ParquetWriter* writer_;
};

}  // namespace espalier::data
