// Documents out of JSONL files: the text of one key and where it came from, one after another.
//
//   DocumentReader reader({"corpus.jsonl.zst", "-"}, "text");
//   Document document;
//   while (reader.next(document)) train_on(document.text);
//   report(reader.malformed());
//
// A file that is not JSONL (input_check.h) is an error; records that Megatron's tool would fail on are skipped and
// counted, the first few with file, line and reason. `preprocess` reads the same records with many threads; this is the
// plain loop for everyone else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/json_record.h"
#include "data/record_reader.h"

namespace espalier::data {

struct Document {
  std::string_view text;  // valid until the next call
  size_t file = 0;        // index into the inputs: the source
  int64_t line = 0;       // from 1, in the decompressed file
};

struct MalformedRecord {
  size_t file = 0;
  int64_t line = 0;    // from 1
  int64_t column = 0;  // from 1, in characters; 0: the whole record
  std::string reason;
};

// All malformed records are counted, the first few kept.
struct MalformedTally {
  static constexpr size_t kKept = 10;
  int64_t count = 0;
  std::vector<MalformedRecord> first;

  void add(MalformedRecord record);
};

// "corpus.jsonl:17: Expecting ',' delimiter (column 18)".
std::string describe(const MalformedRecord& record, const std::vector<std::string>& files);

// The reason why `record` (line `line` of `file`) could not be used.
MalformedRecord malformed_record(std::string_view record, const RecordProblem& problem, size_t file, int64_t line);
// The same for a record that was too long to be kept.
MalformedRecord oversized_record(const RecordBlock& block, int64_t line);

class DocumentReader {
 public:
  explicit DocumentReader(std::vector<std::string> files, const std::string& key = "text");

  bool next(Document& document);
  const MalformedTally& malformed() const { return malformed_; }
  // Bytes of the files, as they are on disk, that were read so far.
  int64_t consumed_bytes() const { return consumed_bytes_; }

 private:
  std::vector<std::string> files_;
  RecordReader reader_;
  JsonRecord record_;
  RecordBlock block_;
  RecordCursor cursor_{""};
  int64_t first_line_ = 1;  // of the block
  MalformedTally malformed_;
  int64_t consumed_bytes_ = 0;
};

}  // namespace espalier::data
