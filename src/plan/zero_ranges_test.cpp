#include "plan/zero_ranges.h"

#include <gtest/gtest.h>

#include <string>

namespace espalier::plan {
namespace {

spec::FlatLayout layout_of(const std::vector<int64_t>& counts) {
  std::vector<spec::ParamSpec> specs;
  for (const int64_t count : counts) specs.push_back({.name = std::to_string(count), .shape = {count}});
  return spec::flat_layout(specs, {});
}

TEST(FlatLayout, ParametersBeginAtMultiplesOf32) {
  const spec::FlatLayout layout = layout_of({1, 7, 33, 64, 0, 5});
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 32, 64, 128, 192, 192}));
  EXPECT_EQ(layout.counts, (std::vector<int64_t>{1, 7, 33, 64, 0, 5}));
  EXPECT_EQ(layout.size, 224);
}

TEST(ZeroRanges, ShardsAreEqualAndCoverTheBuffer) {
  EXPECT_EQ(zero_shard_size(224, 3), 96);
  EXPECT_EQ(zero_padded_size(224, 3), 288);
  EXPECT_EQ(zero_range(224, 3, 2), (spec::IndexRange{192, 288}));
  EXPECT_EQ(zero_padded_size(224, 1), 224);
  EXPECT_EQ(zero_shard_size(32, 7), 32) << "ranks 1 to 6 own padding only";
}

TEST(ZeroRanges, PiecesAreCutAtTheBordersOfShards) {
  const spec::FlatLayout layout = layout_of({1, 7, 33, 64, 0, 5});
  EXPECT_EQ(zero_pieces(layout, 3, 0), (std::vector<ZeroPiece>{{0, 0, 0, 1}, {1, 0, 32, 7}, {2, 0, 64, 32}}));
  EXPECT_EQ(zero_pieces(layout, 3, 1), (std::vector<ZeroPiece>{{2, 32, 0, 1}, {3, 0, 32, 64}}));
  EXPECT_EQ(zero_pieces(layout, 3, 2), (std::vector<ZeroPiece>{{5, 0, 0, 5}}));
}

TEST(ZeroRanges, EveryElementBelongsToOneRank) {
  for (const int64_t ranks : {1, 2, 3, 7, 8}) {
    const std::vector<int64_t> counts = {33, 1, 700, 7, 64, 1001};
    const spec::FlatLayout layout = layout_of(counts);
    std::vector<std::vector<int>> owners;
    for (const int64_t count : counts) owners.emplace_back(count, 0);
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (const ZeroPiece& piece : zero_pieces(layout, ranks, rank)) {
        EXPECT_EQ(zero_range(layout.size, ranks, rank).begin + piece.shard_begin,
                  layout.offsets[piece.param] + piece.param_begin);
        for (int64_t element = 0; element < piece.count; ++element) ++owners[piece.param][piece.param_begin + element];
      }
    for (const auto& param : owners)
      for (const int owned : param) ASSERT_EQ(owned, 1) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace espalier::plan
