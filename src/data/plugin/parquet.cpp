// The functions of libespalier_parquet.so.
#include <cstdio>
#include <exception>

#include "data/parquet_table.h"
#include "data/plugin/parquet_rows.h"

namespace espalier::data {

struct ParquetReader {
  RowReader rows;
};
struct ParquetWriter {
  RowWriter rows;
};

namespace {

// What `work` returns; `otherwise`, and the reason, where it throws.
template <class Work, class Value>
Value guarded(ParquetProblem& problem, Value otherwise, Work work) {
  try {
    return work();
  } catch (const std::exception& failure) {
    std::snprintf(problem.text, sizeof problem.text, "%s", failure.what());
    return otherwise;
  }
}

ParquetReader* open(const char* path, ParquetProblem& problem) {
  return guarded(problem, static_cast<ParquetReader*>(nullptr), [&] { return new ParquetReader{RowReader(path)}; });
}

bool read(ParquetReader* reader, const char*& lines, size_t& size, ParquetProblem& problem) {
  return guarded(problem, false, [&] {
    const std::string& rows = reader->rows.read();
    lines = rows.data();
    size = rows.size();
    return true;
  });
}

int64_t consumed_bytes(const ParquetReader* reader) { return reader->rows.consumed_bytes(); }
void close(ParquetReader* reader) { delete reader; }

ParquetWriter* create(const char* path, const char* columns, const char* compression, ParquetProblem& problem) {
  return guarded(problem, static_cast<ParquetWriter*>(nullptr),
                 [&] { return new ParquetWriter{RowWriter(path, columns, compression)}; });
}

bool write(ParquetWriter* writer, const char* lines, size_t size, ParquetProblem& problem) {
  return guarded(problem, false, [&] {
    writer->rows.write({lines, size});
    return true;
  });
}

bool finish(ParquetWriter* writer, ParquetProblem& problem) {
  return guarded(problem, false, [&] {
    writer->rows.finish();
    return true;
  });
}
void discard(ParquetWriter* writer) { delete writer; }

}  // namespace
}  // namespace espalier::data

extern "C" __attribute__((visibility("default"))) const espalier::data::ParquetTable* espalier_parquet_table() {
  using namespace espalier::data;
  static const ParquetTable table = {
      kParquetInterface, open, read, consumed_bytes, close, create, write, finish, discard};
  return &table;
}
