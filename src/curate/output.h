// Where curated documents go. Files appear whole, when finish() returns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "curate/document.h"

namespace espalier::curate {

class Output {
 public:
  virtual ~Output() = default;
  virtual void write(const Document& document) = 0;  // in order
  // A line, with its end, of a file that such an output wrote.
  virtual void write_line(std::string_view line) = 0;
  // Makes all ready, so that move_into_place() only renames.
  virtual void prepare() = 0;
  virtual void move_into_place() = 0;
  virtual int64_t num_documents() const = 0;
};

// JSONL, compressed as the end of the name says: .gz, .zst, .xz, .bz2, else plain.
std::unique_ptr<Output> jsonl_output(const std::filesystem::path& path, std::string text_key);

// Parquet with a column for each key that a document has (data/parquet.h). Which they are is known after the last
// document: until then, lines wait beside the file. `compression`: none, snappy, gz, zst.
std::unique_ptr<Output> parquet_output(const std::filesystem::path& path, std::string text_key,
                                       const std::string& compression = "zst");

// One of the two, as the end of the name says.
std::unique_ptr<Output> document_output(const std::filesystem::path& path, std::string text_key);

// What is in the way of writing a file of this name: Parquet without the plugin for it.
void check_output(const std::filesystem::path& path, Problems& problems);

}  // namespace espalier::curate
