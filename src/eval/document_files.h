// The documents of a task out of a local file: JSONL (an object a line) or a table (.tsv: names of the fields on the
// first line, no quoting), plain or compressed with gzip, zstd, xz or bzip2, or Parquet where its plugin is built.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/fields.h"

namespace espalier::eval {

// At most this many wrong documents are named together.
inline constexpr size_t kMostProblems = 10;

// NOLINTNEXTLINE(bugprone-exception-escape): that moving it does not throw is the promise of nlohmann::json
struct Document {
  Json content;
  std::string place;  // "piqa.jsonl:17", for messages
};

// Fields at the top that no path of `wanted` begins with are left out; an empty list wants all. The first ten lines
// that are not documents are named together (kBadData).
std::vector<Document> read_documents(const std::string& file, const std::vector<std::string>& wanted);

// Whether `file` is a table, of which all fields are text.
bool is_table(const std::string& file);

// Where the files of tasks are: what --data was given.
class DataFiles {
 public:
  // Words: a folder, in which TASK.jsonl, TASK.jsonl.gz (.zst, .xz), TASK.tsv or TASK.parquet lies; TASK=FILE, or
  // TASK.SPLIT=FILE for the documents of another split; or FILE where there is one task.
  DataFiles(const std::vector<std::string>& words, const std::vector<std::string>& tasks, Problems& problems);

  // The file of a task, which may have the names `others` in a folder as well; empty, with what was looked for among
  // the problems, where there is none.
  std::string find(const std::string& task, Problems& problems, const std::vector<std::string>& others = {}) const;

 private:
  std::vector<std::string> folders_;
  std::map<std::string, std::string> named_;
  bool misses_some_ = false;  // a word of --data names nothing
};

// What to do with a Parquet file where the plugin that reads it is not built.
std::string how_to_convert_parquet(const std::string& file, const std::string& target);

}  // namespace espalier::eval
