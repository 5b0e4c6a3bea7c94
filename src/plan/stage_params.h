// The parameters that a pipeline stage holds.
#pragma once

#include <vector>

#include "plan/partition.h"
#include "spec/param_spec.h"

namespace espalier::plan {

// Those that a depth of the stage's parts uses, in the order of `specs`; what several stages hold names them, and is a
// copy on all but the one that has its own depth.
std::vector<spec::ParamSpec> stage_params(const std::vector<spec::ParamSpec>& specs, const Partition& partition,
                                          int64_t stage);

// The sets of stages that hold parameters in common, each once and in order: between them gradients are summed.
std::vector<std::vector<int64_t>> shared_stages(const std::vector<spec::ParamSpec>& specs, const Partition& partition);

}  // namespace espalier::plan
