// Ranks that were started with different options would train another model than any of them says, or wait for each
// other without end.
#pragma once

#include "base/options.h"
#include "launch/environment.h"

namespace c10d {
class Store;
}

namespace espalier {

// Called by all ranks. Every other rank compares its options with those of rank 0, but for what may differ: paths and
// other texts that a resume may change too, threads. UserError on a rank that differs, which names the options.
void check_same_options(const OptionTable& table, const launch::RankEnvironment& place, c10d::Store& store);

}  // namespace espalier
