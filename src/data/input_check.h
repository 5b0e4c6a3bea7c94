// Input that is not JSONL at all: recognized by its first bytes, or by what came out of it, with what was expected
// instead. All are UserErrors with exit code 65.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/document_reader.h"
#include "data/record_reader.h"

namespace espalier::data {

// A byte-order mark. `head`: the first bytes of a file, decompressed.
void refuse_byte_order_mark(std::string_view head, const std::string& file);

// An archive of tar, by the same bytes.
void refuse_archive(std::string_view head, const std::string& file);

// What is not JSONL, by the first block of a file: a byte-order mark, an archive, or a JSON array over several lines.
void refuse_other_formats(const RecordBlock& first_block, const std::string& file);

// What came of an input that was read to its end.
struct InputTally {
  const std::vector<std::string>& files;
  std::vector<std::string> keys;  // none: plain text
  int64_t num_records = 0, num_documents = 0;
  const MalformedTally& malformed;
};

// Input without a record, without a well-formed record, or without any text.
void refuse_fruitless_input(const InputTally& tally);

}  // namespace espalier::data
