// Does the machine have the memory that its processes of a run will need?
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "launch/environment.h"

namespace espalier {

// What `espalier plan` counts, of all processes of one machine, and the copies from which checkpoints are written,
// compared with what the machine can give. "" where that suffices, or where the run goes to a GPU; else the sentence
// that says so, with the largest parts, and flags after `arguments` (those of train, without the family) with which it
// would. Of a resolved run with a known vocabulary.
std::string lack_of_memory(const std::vector<std::string>& arguments, const config::RunConfig& config,
                           const launch::RankEnvironment& place);

}  // namespace espalier
