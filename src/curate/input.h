// The input of curation: records of files of one kind after another, numbered, in blocks that many threads can turn
// into documents.
//
// A record is what may become one document: a line of JSONL, a page of a dump. Every record has a number, even if it
// becomes no document, so that the fate of each can be reported.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "curate/document.h"

namespace espalier::curate {

enum class InputFormat {
  kJsonl,
  kLines,      // a line is a document
  kText,       // a file is one
  kHtml,       // a file is a page
  kWarc,       // WET too
  kMediaWiki,  // XML dumps
};

// Files that are read in the same way.
struct InputSource {
  std::string name;  // of a recipe's source; else empty
  InputFormat format = InputFormat::kJsonl;
  std::vector<std::string> files;
  std::string text_key = "text";
  bool may_be_empty = false;  // of a recipe: no error where no record of it is a document
  // Set in every document: catalogue metadata such as the licence.
  std::vector<Metadata::Member> metadata;
};

struct RawBlock {
  std::string bytes;
  struct Extent {
    size_t begin = 0, size = 0;
  };
  std::vector<Extent> records;  // in `bytes`
  int64_t first_number = 0;     // of the first record
  size_t source = 0;
  std::string file;
  int64_t first_line = 0;     // of the first record in its file, from 1
  int64_t input_bytes = 0;    // read from disk for this block
  int64_t skipped_bytes = 0;  // not 0: the block is one record that is too long to be kept

  std::string_view record(size_t index) const {
    return std::string_view(bytes).substr(records[index].begin, records[index].size);
  }
};

// The records of one source. One thread reads; the blocks depend on the files only.
class SourceReader {
 public:
  virtual ~SourceReader() = default;
  // Sets all of the block but numbers and source; false at the end.
  virtual bool next(RawBlock& block) = 0;
};

// Of all sources, numbered.
class InputReader {
 public:
  explicit InputReader(const std::vector<InputSource>& sources);
  ~InputReader();
  // False at the end.
  bool next(RawBlock& block);

 private:
  const std::vector<InputSource>& sources_;
  std::unique_ptr<SourceReader> reader_;
  size_t next_source_ = 0;
  int64_t next_number_ = 0;
};

// The document of a record. False, with the reason, where there is none. Any thread.
bool read_record(const InputSource& source, const RawBlock& block, size_t index, Document& document,
                 std::string& reason, int64_t& num_replaced);

// Files that do not exist or cannot be read, folders in place of files.
void check(const InputSource& source, const std::string& option, Problems& problems);

// --format, for commands and recipes.
Option& add_format_row(OptionTable& table, InputSource& source);

// On disk, of all files; 0 where one has no size (standard input).
int64_t total_input_bytes(const std::vector<InputSource>& sources);

}  // namespace espalier::curate
