// Does the machine have the memory that its processes of a run will need?
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "launch/environment.h"
#include "plan/memory.h"

namespace espalier {

// What `espalier plan` counts, of all processes of one machine, and the copies from which checkpoints are written,
// compared with what the machine can give. "" where that suffices, or where the run goes to a GPU; else the sentence
// that says so, with the largest parts, and flags after `arguments` (those of train, without the family) with which it
// would. Of a resolved run with a known vocabulary.
std::string lack_of_memory(const std::vector<std::string>& arguments, const config::RunConfig& config,
                           const launch::RankEnvironment& place);

// Bytes that --non-persistent-save-interval keeps of a rank in its machine's memory, beside the process: two copies of
// the weights and the optimizer's state that it owns, and with --replication two of those that come from another
// machine, which are about as large. `memory`: of the rank's stage.
double copies_in_memory(const config::RunConfig& config, const plan::StageMemory& memory, int64_t rank,
                        int64_t ranks_of_machine);

}  // namespace espalier
