// A run from start to end: the loop around the training step.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/options.h"
#include "config/run_config.h"
#include "dist/grid.h"
#include "train/job.h"
#include "train/observer.h"

namespace espalier::train {

using MakeObserver = std::function<std::unique_ptr<Observer>(Job& job)>;

// Called by all ranks of the grid. `config` is resolved and checked, and `table` the one that filled it; `command_line`
// goes into the run folder. Returns when the run has ended or stopped cleanly (exit interval or duration, kill switch,
// signal); what cannot continue throws. `make_first`: an observer that sees each step before those of the loop. Where a
// run goes back to a checkpoint (--spike-policy roll-back), `config` gets the steps that it passes over since.
void run(config::RunConfig& config, const OptionTable& table, const std::string& command_line, const dist::Grid& grid,
         const MakeObserver& make_first = {});

}  // namespace espalier::train
