#include "spec/shard.h"

#include <algorithm>

#include "base/error.h"

namespace espalier::spec {
namespace {

int64_t product(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  int64_t count = 1;
  for (size_t dim = begin; dim < end; ++dim) count *= shape[dim];
  return count;
}

void append(std::vector<Extent>& extents, const Extent& next) {
  if (next.count == 0) return;
  if (!extents.empty() && extents.back().global_begin + extents.back().count == next.global_begin)
    extents.back().count += next.count;
  else
    extents.push_back(next);
}

}  // namespace

IndexRange share_of(int64_t rows, int64_t unit, const TensorShard& shard) {
  const int64_t units = (rows + unit - 1) / unit;
  const int64_t each = (units + shard.size - 1) / shard.size;
  const int64_t begin = std::min(rows, shard.rank * each * unit);
  return {begin, std::min(rows, begin + each * unit)};
}

std::vector<IndexRange> local_ranges(const ParamSpec& spec, const TensorShard& shard) {
  if (spec.tensor_placement.kind == Placement::Kind::kReplicated) return {{0, spec.shape.at(0)}};
  std::vector<IndexRange> ranges;
  int64_t segment_begin = 0;
  for (const int64_t segment : spec.tensor_placement.segments) {
    const IndexRange share = share_of(segment, spec.tensor_placement.unit, shard);
    ranges.push_back({segment_begin + share.begin, segment_begin + share.end});
    segment_begin += segment;
  }
  ESPALIER_CHECK(segment_begin == spec.shape.at(static_cast<size_t>(spec.tensor_placement.dim)), spec.name,
                 ": segments add up to ", segment_begin);
  return ranges;
}

std::vector<int64_t> local_shape(const ParamSpec& spec, const TensorShard& shard) {
  std::vector<int64_t> shape = spec.shape;
  if (spec.tensor_placement.kind == Placement::Kind::kReplicated) return shape;
  int64_t& local = shape.at(static_cast<size_t>(spec.tensor_placement.dim)) = 0;
  for (const IndexRange& range : local_ranges(spec, shard)) local += range.count();
  return shape;
}

int64_t num_local_elements(const ParamSpec& spec, const TensorShard& shard) {
  const std::vector<int64_t> shape = local_shape(spec, shard);
  return product(shape, 0, shape.size());
}

std::vector<Extent> local_extents(const ParamSpec& spec, const TensorShard& shard) {
  if (spec.tensor_placement.kind == Placement::Kind::kReplicated) return {{0, 0, spec.num_elements()}};
  const auto dim = static_cast<size_t>(spec.tensor_placement.dim);
  const int64_t outer = product(spec.shape, 0, dim), inner = product(spec.shape, dim + 1, spec.shape.size());
  const std::vector<IndexRange> ranges = local_ranges(spec, shard);
  std::vector<Extent> extents;
  int64_t local = 0;
  for (int64_t row = 0; row < outer; ++row)
    for (const IndexRange& range : ranges) {
      append(extents, {(row * spec.shape[dim] + range.begin) * inner, local, range.count() * inner});
      local += range.count() * inner;
    }
  return extents;
}

std::vector<Extent> clip_to_local(const std::vector<Extent>& extents, int64_t begin, int64_t end) {
  std::vector<Extent> clipped;
  for (const Extent& extent : extents) {
    const int64_t from = std::max(begin, extent.local_begin), to = std::min(end, extent.local_begin + extent.count);
    if (from < to) clipped.push_back({extent.global_begin + from - extent.local_begin, from - begin, to - from});
  }
  return clipped;
}

}  // namespace espalier::spec
