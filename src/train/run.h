// A run from start to end: the loop around the training step.
#pragma once

#include <string>

#include "base/options.h"
#include "config/run_config.h"
#include "dist/grid.h"

namespace espalier::train {

// Called by all ranks of the grid. `config` is resolved and checked; `command_line` goes into the run folder. Returns
// when the run has ended or stopped cleanly (exit interval or duration, kill switch, signal); what cannot go on throws.
void run(const config::RunConfig& config, const OptionTable& table, const std::string& command_line,
         const dist::Grid& grid);

}  // namespace espalier::train
