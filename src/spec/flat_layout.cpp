#include "spec/flat_layout.h"

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
  // (not tied, not replicated, depth): sorted as the sections are.
  std::map<std::tuple<bool, bool, int64_t>, std::vector<size_t>> members;
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool together = specs[i].tied_to_output || is_replicated(specs[i]);
    members[{!specs[i].tied_to_output, !is_replicated(specs[i]), together ? -1 : specs[i].depth}].push_back(i);
  }
  FlatLayout layout;
  layout.offsets.resize(specs.size());
  layout.counts.resize(specs.size());
  int64_t next = 0;
  for (const auto& [key, params] : members) {
    const auto& [not_tied, not_replicated, depth] = key;
    FlatSection section{.tied = !not_tied, .replicated = !not_replicated, .depth = depth, .begin = next, .end = next};
    for (const size_t param : params) {
      layout.offsets[param] = section.end;
      layout.counts[param] = num_local_elements(specs[param], shard);
      section.end += round_up_flat(layout.counts[param]);
    }
    section.end = section.begin + round_up(section.end - section.begin, kFlatAlignment * num_sharers);
    next = section.end;
    if (section.end > section.begin) layout.sections.push_back(section);
  }
  layout.size = next;
  return layout;
}

}  // namespace espalier::spec
