#include "plan/recompute.h"

#include <gtest/gtest.h>

#include <string>

namespace espalier::plan {
namespace recompute_test {

std::string text(const std::vector<LayerRange>& ranges) {
  std::string line;
  for (const LayerRange& range : ranges)
    line += std::to_string(range.begin) + "-" + std::to_string(range.end) + (range.recompute ? "r " : " ");
  return line;
}

TEST(Recompute, RangesCoverAllLayersAsMegatronsMethodsSay) {
  using Kind = Recompute::Kind;
  EXPECT_EQ(text(Recompute{}.ranges(5)), "0-5 ");
  EXPECT_EQ(text(Recompute{Kind::kUniform, 1}.ranges(3)), "0-1r 1-2r 2-3r ");
  EXPECT_EQ(text(Recompute{Kind::kUniform, 2}.ranges(5)), "0-2r 2-4r 4-5r ");
  EXPECT_EQ(text(Recompute{Kind::kBlock, 2}.ranges(5)), "0-1r 1-2r 2-5 ");
  EXPECT_EQ(text(Recompute{Kind::kBlock, 7}.ranges(2)), "0-1r 1-2r ");
  // A second stack of the same part: the first layers of the part come before it.
  EXPECT_EQ(text(Recompute{Kind::kBlock, 3}.ranges(4, 2)), "0-1r 1-4 ");
  EXPECT_EQ(text(Recompute{Kind::kBlock, 3}.ranges(4, 5)), "0-4 ");
  EXPECT_EQ(text(Recompute{Kind::kUniform, 2}.ranges(3, 5)), "0-2r 2-3r ");
}

}  // namespace recompute_test
}  // namespace espalier::plan
