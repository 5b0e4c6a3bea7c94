#include "report/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/console.h"
#include "base/format.h"

namespace espalier::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  lines.pop_back();
  return lines;
}

TEST(Plot, FallingLineGoesFromTheTopLeftToTheBottomRight) {
  const auto lines = lines_of(plot({0, 1, 2, 3}, {3, 2, 1, 0}, {.width = 24, .height = 6, .braille = false}));
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[0], "        3 |**") << "thirteen columns and four rows: y = 3 - x / 4";
  EXPECT_EQ(lines[1], "          |  ****");
  EXPECT_EQ(lines[2], "        1 |      ****") << "the scale: 3, 2, 1, 0";
  EXPECT_EQ(lines[3], "        0 |          ***");
  EXPECT_EQ(lines[4], "          +-------------");
  EXPECT_EQ(lines[5], "           0   step    3");
}

TEST(Plot, DotsOfBrailleAreTwoByFourToACharacter) {
  // Two rows of characters are eight rows of dots; a constant is one line of dots at the bottom.
  const auto lines = lines_of(plot({1, 100}, {5, 5}, {.width = 24, .height = 4, .braille = true}));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "        5 │");
  EXPECT_EQ(lines[1], "        5 │⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀");
}

TEST(Plot, NoLineIsWiderThanAsked) {
  std::vector<int64_t> steps;
  std::vector<double> values;
  for (int step = 1; step <= 1'000'000; step += 7) {
    steps.push_back(step);
    values.push_back(3 + std::sin(step * 1e-4));
  }
  for (const int width : {24, 33, 80, 237})
    for (const bool braille : {false, true})
      for (const std::string& line : lines_of(plot(steps, values, {width, 12, braille})))
        EXPECT_LE(display_width(line), static_cast<size_t>(width)) << line;
}

TEST(Plot, PointsThatAreNoNumbersAreGaps) {
  EXPECT_EQ(plot({1, 2}, {kNaN, kNaN}, {}), "");
  EXPECT_EQ(plot({}, {}, {}), "");
  EXPECT_NE(plot({1}, {2}, {}), "");
  EXPECT_NE(plot({1, 2, 3}, {1, kNaN, std::numeric_limits<double>::infinity()}, {}), "");
}

}  // namespace
}  // namespace espalier::report
