#include "plan/stage_params.h"

namespace espalier::plan {

std::vector<spec::ParamSpec> stage_params(const std::vector<spec::ParamSpec>& specs, const Partition& partition,
                                          int64_t stage) {
  const bool holds_output = partition.stage_of(partition.num_layers + 1) == stage;
  std::vector<spec::ParamSpec> held;
  for (const spec::ParamSpec& spec : specs) {
    const bool owner = partition.stage_of(spec.depth) == stage;
    if (!owner && !(spec.tied_to_output && holds_output)) continue;
    held.push_back(spec);
    held.back().is_copy = !owner;
  }
  return held;
}

}  // namespace espalier::plan
