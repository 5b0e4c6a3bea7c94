#include "plan/recompute.h"

#include <algorithm>

namespace espalier::plan {

std::vector<LayerRange> Recompute::ranges(int64_t total, int64_t before) const {
  std::vector<LayerRange> ranges;
  const int64_t alone = std::clamp<int64_t>(num_layers - before, 0, total);  // of kBlock
  switch (kind) {
    case Kind::kNone: ranges.push_back({0, total, false}); break;
    case Kind::kUniform:
      for (int64_t begin = 0; begin < total; begin += num_layers)
        ranges.push_back({begin, std::min(total, begin + num_layers), true});
      break;
    case Kind::kBlock:
      for (int64_t layer = 0; layer < alone; ++layer) ranges.push_back({layer, layer + 1, true});
      if (alone < total) ranges.push_back({alone, total, false});
      break;
  }
  return ranges;
}

int64_t num_recomputed(const Recompute& recompute, int64_t num_layers_of_part) {
  int64_t count = 0;
  for (const LayerRange& range : recompute.ranges(num_layers_of_part))
    if (range.recompute) count += range.end - range.begin;
  return count;
}

}  // namespace espalier::plan
