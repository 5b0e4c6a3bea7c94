// espalier data: what can be done with token files.
#include "apps/commands.h"
#include "apps/data/commands.h"

namespace espalier {
// In the order in which the help shows them.
const std::vector<Command>& data_commands() {
  static const std::vector<Command> list = {
      {"inspect", "what is inside: counts, sizes, the first documents as text", data_inspect_main},
      {"check", "read everything: the whole index, every id against the vocabulary", data_check_main},
      {"merge", "append data sets, or the parts of preprocess --shard, into one", data_merge_main},
      {"blend", "compute the weights of data sets and write the split files that training reads", data_blend_main},
      {"who", "which documents a step of a run was made of", data_who_main},
      {"where", "in which steps of a run a document was, or will be, seen", data_where_main},
      {"sample", "samples as training will read them, as text or ids", data_sample_main, sample_families},
  };
  return list;
}

int data_main(const std::vector<std::string>& arguments) {
  return run_subcommand("espalier data", data_commands(), arguments);
}

}  // namespace espalier
