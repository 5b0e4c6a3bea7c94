#include "curate/source_check.h"

#include <filesystem>

#include "base/format.h"

namespace espalier::curate {
namespace {

// What is wrong with a source that holds no document; empty where it holds one.
std::string describe_empty(const InputSource& source) {
  const std::vector<InputSource> alone = {source};
  InputReader reader(alone);
  int64_t num_records = 0, num_replaced = 0;
  std::string first;
  for (RawBlock block; reader.next(block); block = {}) {
    for (size_t index = 0; index < block.records.size(); ++index, ++num_records) {
      Document document;
      std::string reason;
      if (read_record(alone.front(), block, index, document, reason, num_replaced)) return "";
      if (first.empty()) first = concat(block.file, ":", block.first_line + static_cast<int64_t>(index), ": ", reason);
    }
  }
  if (num_records == 0)
    return concat("there is no record in its ", format_counted(std::ssize(source.files), "file"), " (",
                  source.files.front(), source.files.size() > 1 ? ", ..." : "", ")");
  return concat(num_records == 1
                    ? "its only record is not a document: "
                    : concat("none of its ", format_count(num_records), " records is a document. The first: "),
                first);
}

}  // namespace

void check_sources(const std::vector<InputSource>& sources, Problems& problems) {
  for (const InputSource& source : sources) {
    if (source.may_be_empty) continue;
    if (const std::string empty = describe_empty(source); !empty.empty())
      problems.add("[[source]] ", source.name, ": ", empty,
                   ". Nothing was written; may_be_empty = true lets the source be so");
  }
}

}  // namespace espalier::curate
