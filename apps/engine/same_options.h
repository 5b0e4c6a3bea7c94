// Ranks that were started with different options would train another model than any of them says, or wait for each
// other without end.
#pragma once

#include <map>
#include <string>

#include "base/options.h"
#include "launch/environment.h"

namespace c10d {
class Store;
}

namespace espalier {

// Called by all ranks. Every other rank compares its options with those of rank 0, but for what may differ: paths and
// other texts that a resume may change too, threads. UserError on a rank that differs, which names the options.
void check_same_options(const OptionTable& table, const launch::RankEnvironment& place, c10d::Store& store);

// The same of values by their names, with which they are reported.
using NamedValues = std::map<std::string, std::string>;
void check_same_values(const NamedValues& own, const launch::RankEnvironment& place, c10d::Store& store);
// Ranks that differ in this would meet in different ways.
void add_one_machine(const launch::RankEnvironment& place, NamedValues& values);

}  // namespace espalier
