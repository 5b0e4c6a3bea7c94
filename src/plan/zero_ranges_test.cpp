#include "plan/zero_ranges.h"

#include <gtest/gtest.h>

#include <string>

namespace espalier::plan {
namespace {

using spec::IndexRange;

// One parameter per entry; where all depths differ, each is a section.
spec::FlatLayout layout_of(const std::vector<int64_t>& counts, int64_t num_sharers, bool one_depth = false) {
  std::vector<spec::ParamSpec> specs;
  for (const int64_t count : counts)
    specs.push_back({.name = std::to_string(specs.size()),
                     .shape = {count},
                     .tensor_placement = spec::Placement::split(0, {count}),
                     .depth = one_depth ? 1 : static_cast<int64_t>(specs.size())});
  return spec::flat_layout(specs, {}, num_sharers);
}

ZeroShape shape_of(ZeroStage stage, int64_t num_ranks, int64_t unit_elements) {
  return {stage, num_ranks, unit_elements};
}

TEST(ZeroRanges, UnitsOfOneSizeCoverTheBuffer) {
  const auto units = zero_units(layout_of({1, 7, 33, 64, 0, 5}, 1), shape_of(ZeroStage::kNone, 3, 100));
  ASSERT_EQ(units.size(), 3u);  // 224 elements, 96 at once
  EXPECT_EQ(units[0].begin, 0);
  EXPECT_EQ(units[1].begin, 96);
  EXPECT_EQ(units[2].begin, 192);
  EXPECT_EQ(units[2].end, 224);
}

TEST(ZeroRanges, EveryRankOwnsAPartOfEveryUnit) {
  const ZeroShape shape = shape_of(ZeroStage::kOptimizer, 2, 64);
  const spec::FlatLayout layout = layout_of({1, 7, 33, 64, 0, 5}, 2, /*one_depth=*/true);
  EXPECT_EQ(layout.size, 256);  // 224, padded to two shards
  EXPECT_EQ(zero_shard_size(layout, shape), 128);
  // Units 0, 64, 128, 192; parameters at 0, 32, 64, 128, 192, 192.
  EXPECT_EQ(zero_pieces(layout, shape, 0),
            (std::vector<ZeroPiece>{{0, 0, 0, 1}, {2, 0, 32, 32}, {3, 0, 64, 32}, {5, 0, 96, 5}}));
  EXPECT_EQ(zero_pieces(layout, shape, 1), (std::vector<ZeroPiece>{{1, 0, 0, 7}, {2, 32, 32, 1}, {3, 32, 64, 32}}));
}

TEST(ZeroRanges, WithoutZeroEveryParameterIsOnePiece) {
  const auto pieces = zero_pieces(layout_of({33, 1, 700}, 1), shape_of(ZeroStage::kNone, 4, 32), 2);
  EXPECT_EQ(pieces, (std::vector<ZeroPiece>{{0, 0, 0, 33}, {1, 0, 64, 1}, {2, 0, 96, 700}}));
}

TEST(ZeroRanges, FromStageTwoAUnitIsASection) {
  const auto units = zero_units(layout_of({1, 700, 64}, 3), shape_of(ZeroStage::kGradients, 3, 32));
  ASSERT_EQ(units.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(units[i].section, static_cast<size_t>(i));
  EXPECT_EQ(units[1].begin, 96);
  EXPECT_EQ(units[1].end, 96 + 768);
}

TEST(ZeroRanges, EveryElementBelongsToOneRank) {
  const std::vector<int64_t> counts = {33, 1, 700, 7, 64, 1001};
  for (const int64_t ranks : {1, 2, 3, 7, 8})
    for (const ZeroStage stage : {ZeroStage::kOptimizer, ZeroStage::kGradients}) {
      const spec::FlatLayout layout = layout_of(counts, ranks);
      const ZeroShape shape = shape_of(stage, ranks, 256);
      std::vector<std::vector<int>> owners;
      for (const int64_t count : counts) owners.emplace_back(count, 0);
      for (int64_t rank = 0; rank < ranks; ++rank)
        for (const ZeroPiece& piece : zero_pieces(layout, shape, rank))
          for (int64_t i = 0; i < piece.count; ++i) ++owners[piece.param][piece.param_begin + i];
      for (const auto& param : owners)
        for (const int owned : param) ASSERT_EQ(owned, 1) << ranks << " ranks";
    }
}

TEST(ZeroRanges, ALayoutForOtherRanksIsRefused) {
  EXPECT_ANY_THROW(zero_units(layout_of({33}, 1), shape_of(ZeroStage::kOptimizer, 3, 100)));
}

}  // namespace
}  // namespace espalier::plan
