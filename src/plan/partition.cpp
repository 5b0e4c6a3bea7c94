#include "plan/partition.h"

#include <algorithm>

#include "base/error.h"

namespace espalier::plan {

DepthRange Partition::layers(int64_t stage, int64_t chunk) const {
  const DepthRange& range = part(stage, chunk);
  const int64_t begin = std::max<int64_t>(range.begin, 1) - 1;
  return {begin, std::max(begin, std::min(range.end, num_layers + 1) - 1)};
}

int64_t Partition::stage_of(int64_t depth) const {
  for (size_t part = 0; part < parts.size(); ++part)
    if (parts[part].contains(depth)) return static_cast<int64_t>(part) % num_stages;
  ESPALIER_CHECK(false, "no part holds depth ", depth);
  return -1;
}

Partition partition_evenly(int64_t num_layers, int64_t num_stages, int64_t num_chunks) {
  const int64_t num_parts = num_stages * num_chunks;
  ESPALIER_CHECK(num_layers % num_parts == 0, num_layers, " layers in ", num_parts, " parts");
  const int64_t each = num_layers / num_parts;
  Partition partition{.num_stages = num_stages, .num_chunks = num_chunks, .num_layers = num_layers, .parts = {}};
  for (int64_t part = 0; part < num_parts; ++part)
    partition.parts.push_back({1 + part * each, 1 + (part + 1) * each});
  partition.parts.front().begin = 0;
  partition.parts.back().end = num_layers + 2;
  return partition;
}

}  // namespace espalier::plan
