// espalier data merge: several data sets into one.
#include "data/merge.h"
#include "apps/data/commands.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/pending_file.h"

namespace espalier {

int data_merge_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> prefixes;
  std::string folder, output;
  bool overwrite = false;
  OptionTable table("espalier data merge", "Appends token files to one another, without reading their tokens.");
  table.allow_prefixes();
  table.add("--datasets", prefixes, "prefixes of the data sets, in the order in which to append them")
      .value_name("PREFIX");
  table.add("--input", folder, "instead: a folder, whose data sets are all appended in the order of their names")
      .value_name("DIR");
  table.add("--output-prefix", output, "prefix of the new data set").value_name("PREFIX").required();
  table.add("--overwrite", overwrite, "replace the token files of --output-prefix if they exist");
  const std::string no_processes = "one process copies as fast as the disk writes";
  table.add_without_effect("--merge", OptionTable::Takes::kOne, no_processes);
  table.add_without_effect("--torch-backend", OptionTable::Takes::kOne, no_processes);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  if (prefixes.empty() == folder.empty())
    problems.add("give the data sets with --datasets PREFIX... or with --input DIR",
                 folder.empty() ? "" : ", not with both");
  else if (!folder.empty())
    prefixes = data::prefixes_in(folder, problems);
  problems.raise();

  clean_up_when_interrupted();
  const data::MergeSummary summary = data::merge(prefixes, output, overwrite);
  log_info("wrote ", output, ".{bin,idx}: ", format_count(summary.num_documents), " documents, ",
           format_count(summary.num_tokens), " tokens from ", prefixes.size(),
           prefixes.size() == 1 ? " data set" : " data sets");
  return 0;
}

}  // namespace espalier
