#include "spec/shard.h"

#include <gtest/gtest.h>

#include <numeric>

namespace espalier::spec {
namespace {

// The definition, element by element: a rank holds those whose index along the dimension is in its share of the
// segment, in row-major order.
std::vector<int64_t> elements_of(const ParamSpec& spec, const TensorShard& shard) {
  const auto dim = static_cast<size_t>(spec.tensor_placement.dim);
  int64_t inner = 1;
  for (size_t d = dim + 1; d < spec.shape.size(); ++d) inner *= spec.shape[d];
  std::vector<int64_t> owner;  // of each index along the dimension
  for (const int64_t segment : spec.tensor_placement.segments) {
    const int64_t units = (segment + spec.tensor_placement.unit - 1) / spec.tensor_placement.unit;
    for (int64_t row = 0; row < segment; ++row) {
      int64_t rank = 0, left = row / spec.tensor_placement.unit;
      while (left >= (units + shard.size - 1) / shard.size) {
        left -= (units + shard.size - 1) / shard.size;
        ++rank;
      }
      owner.push_back(rank);
    }
  }
  std::vector<int64_t> elements;
  for (int64_t element = 0; element < spec.num_elements(); ++element)
    if (owner[static_cast<size_t>(element / inner % spec.shape[dim])] == shard.rank) elements.push_back(element);
  return elements;
}

std::vector<int64_t> elements_of(const std::vector<Extent>& extents) {
  std::vector<int64_t> elements;
  for (const Extent& extent : extents) {
    EXPECT_EQ(extent.local_begin, static_cast<int64_t>(elements.size()));
    for (int64_t i = 0; i < extent.count; ++i) elements.push_back(extent.global_begin + i);
  }
  return elements;
}

ParamSpec param(std::vector<int64_t> shape, Placement placement) {
  ParamSpec spec;
  spec.name = "p";
  spec.shape = std::move(shape);
  spec.tensor_placement = std::move(placement);
  return spec;
}

TEST(Shard, HoldsTheElementsOfItsShareOfEverySegment) {
  const std::vector<ParamSpec> specs = {
      param({7, 5}, Placement::split(0, {7})),
      param({6, 7}, Placement::split(1, {7})),
      param({18, 3}, Placement::split(0, {18}, 3)),
      param({24, 2}, Placement::split(0, {12, 12})),
      param({3, 8}, Placement::split(1, {4, 4})),
      param({33}, Placement::split(0, {33})),
      param({2, 30, 3}, Placement::split(1, {20, 10}, 5)),
  };
  for (const ParamSpec& spec : specs)
    for (int64_t size = 1; size <= 8; ++size) {
      std::vector<int64_t> seen;
      for (int64_t rank = 0; rank < size; ++rank) {
        const std::vector<int64_t> expected = elements_of(spec, {size, rank});
        EXPECT_EQ(elements_of(local_extents(spec, {size, rank})), expected);
        EXPECT_EQ(num_local_elements(spec, {size, rank}), static_cast<int64_t>(expected.size()));
        seen.insert(seen.end(), expected.begin(), expected.end());
      }
      std::sort(seen.begin(), seen.end());
      std::vector<int64_t> all(static_cast<size_t>(spec.num_elements()));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(seen, all);
    }
}

TEST(Shard, ReplicatedParametersAreWholeOnEveryRank) {
  const ParamSpec spec = param({7, 5}, Placement::replicated());
  EXPECT_EQ(local_shape(spec, {3, 1}), (std::vector<int64_t>{7, 5}));
  EXPECT_EQ(local_extents(spec, {3, 1}), (std::vector<Extent>{{0, 0, 35}}));
}

TEST(Shard, TheLastRanksOfAShortVocabularyGetFewerRows) {
  EXPECT_EQ(share_of(50257, 1, {4, 3}), (IndexRange{37695, 50257}));
  EXPECT_EQ(share_of(3, 1, {4, 3}), (IndexRange{3, 3}));
}

TEST(Shard, ClippingCutsRunsAtTheShardsEnds) {
  const std::vector<Extent> extents = {{10, 0, 5}, {30, 5, 5}};
  EXPECT_EQ(clip_to_local(extents, 3, 7), (std::vector<Extent>{{13, 0, 2}, {30, 2, 2}}));
  EXPECT_TRUE(clip_to_local(extents, 10, 12).empty());
}

}  // namespace
}  // namespace espalier::spec
