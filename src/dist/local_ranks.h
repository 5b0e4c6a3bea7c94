// Ranks on this machine as forked children of this process: for tests and for `espalier parity`.
//
// The parent must have loaded libtorch and run nothing with it: a thread pool does not survive a fork. Eight ranks
// start in well under a second.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dist/grid.h"

namespace espalier::dist {

// What each rank runs; the text it returns comes back to the parent.
using RankFunction = std::function<std::string(const Grid& grid)>;

struct LocalRanksOptions {
  double timeout_seconds = 120;
  int num_threads = 1;  // of each rank
  // GridOptions::shared_stages; unset: the first and the last, as a tied embedding has it.
  std::optional<std::vector<std::vector<int64_t>>> shared_stages;
  bool shared_memory = true;   // else Gloo
  bool reads_directly = true;  // BackendOptions::reads_directly
  // Called in each rank before its groups are made: what it computes on (GridOptions::device). A process that has used
  // a GPU cannot be forked.
  std::function<void(int64_t rank, GridOptions& options)> place;
};

// Runs `function` on every rank of `shape` at once. The results in the order of ranks. A rank that throws, dies or
// hangs ends all others; the error names the rank and its message.
std::vector<std::string> run_ranks(const spec::GridShape& shape, const RankFunction& function,
                                   const LocalRanksOptions& options = {});

}  // namespace espalier::dist
