// The parameters that a pipeline stage holds.
#pragma once

#include <vector>

#include "plan/partition.h"
#include "spec/param_spec.h"

namespace espalier::plan {

// Those whose depth lies in one of the stage's parts, in the order of `specs`. The stage that holds the output also
// gets a copy (is_copy) of what is tied to it, unless it owns that itself.
std::vector<spec::ParamSpec> stage_params(const std::vector<spec::ParamSpec>& specs, const Partition& partition,
                                          int64_t stage);

}  // namespace espalier::plan
