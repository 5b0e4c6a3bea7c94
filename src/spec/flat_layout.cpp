#include "spec/flat_layout.h"

namespace espalier::spec {

int64_t round_up_flat(int64_t count) { return (count + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment; }

FlatLayout flat_layout(const std::vector<ParamSpec>& specs, const TensorShard& shard) {
  FlatLayout layout;
  for (const ParamSpec& spec : specs) {
    layout.offsets.push_back(layout.size);
    layout.counts.push_back(num_local_elements(spec, shard));
    layout.size += round_up_flat(layout.counts.back());
  }
  return layout;
}

}  // namespace espalier::spec
