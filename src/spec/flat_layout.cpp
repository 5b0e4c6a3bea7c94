#include "spec/flat_layout.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"

namespace espalier::spec {
namespace {

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

bool is_replicated(const ParamSpec& spec) { return spec.tensor_placement.kind == Placement::Kind::kReplicated; }

}  // namespace

int64_t round_up_flat(int64_t count) { return round_up(count, kFlatAlignment); }

FlatLayout flat_layout(const std::vector<ParamSpec>& specs, const TensorShard& shard, int64_t num_sharers) {
  ESPALIER_CHECK(num_sharers >= 1, num_sharers, " sharers");
  // (not tied, not replicated, use is split, depth): sorted as the sections are.
  std::map<std::tuple<bool, bool, bool, int64_t>, std::vector<size_t>> members;
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool together = specs[i].tied_to_output || is_replicated(specs[i]);
    members[{!specs[i].tied_to_output, !is_replicated(specs[i]), specs[i].use_is_split, together ? -1 : specs[i].depth}]
        .push_back(i);
  }
  int64_t last_depth = 0;
  for (const ParamSpec& spec : specs) last_depth = std::max(last_depth, spec.depth);
  FlatLayout layout;
  layout.offsets.resize(specs.size());
  layout.counts.resize(specs.size());
  layout.section_of.resize(specs.size());
  for (auto& [key, params] : members) {
    const auto& [not_tied, not_replicated, use_is_split, depth] = key;
    FlatSection section{.tied = !not_tied,
                        .replicated = !not_replicated,
                        .use_is_split = use_is_split,
                        .depth = depth,
                        .is_layer = 0 < depth && depth < last_depth,
                        .begin = layout.size,
                        .end = layout.size,
                        .params = std::move(params)};
    for (const size_t param : section.params) {
      layout.section_of[param] = layout.sections.size();
      layout.offsets[param] = section.end;
      layout.counts[param] = num_local_elements(specs[param], shard);
      section.end += round_up_flat(layout.counts[param]);
    }
    section.end = section.begin + round_up(section.count(), kFlatAlignment * num_sharers);
    layout.size = section.end;
    layout.sections.push_back(std::move(section));
  }
  return layout;
}

bool gradients_come_and_go(const FlatSection& section, const Sharing& sharing) {
  return sharing.num_ranks > 1 && sharing.stage >= ZeroStage::kGradients && !section.replicated;
}

bool values_come_and_go(const FlatSection& section, const Sharing& sharing) {
  return sharing.num_ranks > 1 && sharing.stage >= ZeroStage::kParameters && section.is_layer;
}

}  // namespace espalier::spec
