// Which neighbours a Retro reads while it continues or scores texts, for the commands that let it.
#pragma once

#include <string>

#include "base/options.h"

namespace espalier {

struct NeighborOptions {
  std::string workdir;  // of `espalier retro build`; empty: that of the run
  bool without = false;
};

// --retro-workdir and --retro-without-neighbors
void add_neighbor_rows(OptionTable& table, NeighborOptions& options);
void check_neighbors(const NeighborOptions& options, Problems& problems);

}  // namespace espalier
