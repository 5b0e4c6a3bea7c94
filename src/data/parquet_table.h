// What libespalier_parquet.so offers: plain data and functions without exceptions, so that nothing of Arrow crosses.
//
// Rows cross as JSON lines, so that Parquet is read and written by whatever reads and writes JSONL.
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier::data {

inline constexpr int64_t kParquetInterface = 1;  // raised with every change of this file

// Where a call failed, why: a sentence, cut to its size.
struct ParquetProblem {
  char text[2000] = "";
};

struct ParquetReader;
struct ParquetWriter;

struct ParquetTable {
  int64_t interface_version = kParquetInterface;

  // Null where it failed.
  ParquetReader* (*open)(const char* path, ParquetProblem& problem) = nullptr;
  // The next rows as lines, valid until the next call; `size` is 0 at the end. False where it failed.
  bool (*read)(ParquetReader* reader, const char*& lines, size_t& size, ParquetProblem& problem) = nullptr;
  int64_t (*consumed_bytes)(const ParquetReader* reader) = nullptr;  // of the file, about
  void (*close)(ParquetReader* reader) = nullptr;

  // `columns`: a JSON object from names to types: "string", "int64", "double", "bool", [type] for lists and
  // {"name": type} for structures. `compression`: none, snappy, gzip, zstd. Null where it failed.
  ParquetWriter* (*create)(const char* path, const char* columns, const char* compression,
                           ParquetProblem& problem) = nullptr;
  // Lines that agree with the columns, as one row group.
  bool (*write)(ParquetWriter* writer, const char* lines, size_t size, ParquetProblem& problem) = nullptr;
  bool (*finish)(ParquetWriter* writer, ParquetProblem& problem) = nullptr;  // the footer
  void (*discard)(ParquetWriter* writer) = nullptr;                          // after finish(), too
};

}  // namespace espalier::data
