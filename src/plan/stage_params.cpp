#include "plan/stage_params.h"

#include <algorithm>

namespace espalier::plan {

std::vector<spec::ParamSpec> stage_params(const std::vector<spec::ParamSpec>& specs, const Partition& partition,
                                          int64_t stage) {
  std::vector<spec::ParamSpec> held;
  for (const spec::ParamSpec& spec : specs) {
    std::vector<int64_t> stages = {partition.stage_of(spec.depth)};
    const bool is_owner = stages[0] == stage;
    for (const int64_t depth : spec.other_depths) stages.push_back(partition.stage_of(depth));
    std::sort(stages.begin(), stages.end());
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    if (std::find(stages.begin(), stages.end(), stage) == stages.end()) continue;
    held.push_back(spec);
    held.back().is_copy = !is_owner;
    if (stages.size() > 1) held.back().stages = std::move(stages);
  }
  return held;
}

std::vector<std::vector<int64_t>> shared_stages(const std::vector<spec::ParamSpec>& specs, const Partition& partition) {
  std::vector<std::vector<int64_t>> all;
  for (int64_t stage = 0; stage < partition.num_stages; ++stage)
    for (const spec::ParamSpec& spec : stage_params(specs, partition, stage))
      if (!spec.stages.empty() && std::find(all.begin(), all.end(), spec.stages) == all.end())
        all.push_back(spec.stages);
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace espalier::plan
