// Which elements of a parameter one tensor rank holds: pure functions of its ParamSpec.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/param_spec.h"

namespace espalier::spec {

// Place along the tensor axis.
struct TensorShard {
  int64_t size = 1;  // tensor-parallel size
  int64_t rank = 0;
};

// Indices [begin, end) of one dimension.
struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

// Elements that are together both in the global tensor and in the local one; offsets in elements, row-major.
struct Extent {
  int64_t global_begin = 0, local_begin = 0, count = 0;
  bool operator==(const Extent&) const = default;
};

// The range of `units` units of `unit` rows that a rank gets: ceil(units / size) each, the last ranks fewer or none.
IndexRange share_of(int64_t rows, int64_t unit, const TensorShard& shard);

// The ranges along placement.dim that the rank holds, one for each segment, in order (global indices); one range with
// everything along dimension 0 for a replicated parameter.
std::vector<IndexRange> local_ranges(const ParamSpec& spec, const TensorShard& shard);

std::vector<int64_t> local_shape(const ParamSpec& spec, const TensorShard& shard);
int64_t num_local_elements(const ParamSpec& spec, const TensorShard& shard);

// The local tensor as runs of the global one, in local order; neighbours are joined.
std::vector<Extent> local_extents(const ParamSpec& spec, const TensorShard& shard);

// The part of `extents` whose local offsets are in [begin, end), with local offsets counted from `begin` (ZeRO shards
// of a flat local tensor).
std::vector<Extent> clip_to_local(const std::vector<Extent>& extents, int64_t begin, int64_t end);

}  // namespace espalier::spec
