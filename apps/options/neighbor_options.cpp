#include "apps/options/neighbor_options.h"

namespace espalier {

void add_neighbor_rows(OptionTable& table, NeighborOptions& options) {
  table.group("neighbours, of a Retro");
  table
      .add("--retro-workdir", options.workdir,
           "folder of 'espalier retro build' in which they are found; by default the one that the run was trained with")
      .alias("--retro-project-dir")
      .value_name("DIR");
  table.add("--retro-without-neighbors", options.without, "read none, as the GPT with those weights")
      .alias("--no-retrieval");
}

void check_neighbors(const NeighborOptions& options, Problems& problems) {
  if (!options.workdir.empty() && options.without)
    problems.add("--retro-workdir and --retro-without-neighbors exclude each other: give the one that is meant");
}

}  // namespace espalier
