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
  // (not shared, by which depths, not replicated, use is split, depth): sorted as the sections are.
  using Key = std::tuple<bool, std::vector<int64_t>, bool, bool, int64_t>;
  std::map<Key, std::vector<size_t>> members;
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParamSpec& spec = specs[i];
    // Those that are shared are together where the same depths use them.
    const bool together = !spec.is_shared() && is_replicated(spec);
    members[{!spec.is_shared(), spec.other_depths, !is_replicated(spec), spec.use_is_split, together ? -1 : spec.depth}]
        .push_back(i);
  }
  int64_t last_depth = 0;
  for (const ParamSpec& spec : specs) last_depth = std::max(last_depth, spec.depth);
  FlatLayout layout;
  layout.offsets.resize(specs.size());
  layout.counts.resize(specs.size());
  layout.section_of.resize(specs.size());
  for (auto& [key, params] : members) {
    const auto& [not_shared, other_depths, not_replicated, use_is_split, depth] = key;
    FlatSection section{.is_shared = !not_shared,
                        .stages = specs[params.front()].stages,
                        .replicated = !not_replicated,
                        .use_is_split = use_is_split,
                        .depth = not_shared ? depth : -1,
                        .is_layer = not_shared && 0 < depth && depth < last_depth,
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
