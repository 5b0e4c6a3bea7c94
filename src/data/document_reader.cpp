#include "data/document_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "data/input_check.h"

namespace espalier::data {

void MalformedTally::add(MalformedRecord record) {
  ++count;
  if (first.size() < kKept) first.push_back(std::move(record));
}

std::string describe(const MalformedRecord& record, const std::vector<std::string>& files) {
  std::string text = concat(shown_name(files[record.file]), ":", record.line, ": ", record.reason);
  if (record.column > 0) text += concat(" (column ", record.column, ")");
  return text;
}

MalformedRecord malformed_record(std::string_view record, const RecordProblem& problem, size_t file, int64_t line) {
  if (record.find_first_not_of(" \t") == std::string_view::npos) return {file, line, 0, "The line is blank"};
  MalformedRecord result{file, line, 0, problem.reason};
  if (problem.at_byte >= 0) {
    // Characters begin at every byte that does not continue one.
    const std::string_view before = record.substr(0, static_cast<size_t>(problem.at_byte));
    result.column = 1 + std::count_if(before.begin(), before.end(), [](char byte) { return (byte & 0xc0) != 0x80; });
  }
  return result;
}

MalformedRecord oversized_record(const RecordBlock& block, int64_t line) {
  return {block.file, line, 0,
          concat("The record has ", format_count(block.skipped_bytes), " bytes, the limit is ",
                 format_count(kMaxRecordBytes))};
}

DocumentReader::DocumentReader(std::vector<std::string> files, const std::string& key)
    : files_(std::move(files)),
      reader_(files_, slices_of_shard(files_, Shard{})),
      record_({key}, /*replace_lone_surrogates=*/false) {}

bool DocumentReader::next(Document& document) {
  std::string_view record;
  for (;;) {
    while (cursor_.next(record)) {
      const int64_t line = first_line_ + cursor_.count() - 1;
      if (record_.parse(record)) {
        document = {record_.text(0), block_.file, line};
        return true;
      }
      malformed_.add(malformed_record(record, record_.problem(), block_.file, line));
    }
    const size_t file = block_.file;
    first_line_ += cursor_.count() + (block_.skipped_bytes > 0 ? 1 : 0);
    if (!reader_.next(block_)) return false;
    if (block_.file != file) first_line_ = 1;
    if (block_.first_byte == 0) refuse_other_formats(block_, files_[block_.file]);
    consumed_bytes_ += block_.input_bytes;
    cursor_ = RecordCursor(block_.bytes);
    if (block_.skipped_bytes > 0) malformed_.add(oversized_record(block_, first_line_));
  }
}

}  // namespace espalier::data
