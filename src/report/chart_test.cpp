#include "report/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "base/error.h"

namespace espalier::report {
namespace chart_test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// The path of a class: "c" lines, "r" extremes.
std::string path(const std::string& svg, const std::string& css) {
  std::smatch match;
  return std::regex_search(svg, match, std::regex("class=\"" + css + "\"[^>]* d=\"([^\"]*)\"")) ? match[1].str() : "";
}

TEST(Chart, TicksAreRound) {
  EXPECT_EQ(round_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(round_ticks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(round_ticks(1, 1000, 8), (std::vector<double>{200, 400, 600, 800, 1000}));
  const std::vector<double> small = round_ticks(2.31, 2.36, 7);
  ASSERT_EQ(small.size(), 6U);
  for (size_t i = 0; i < small.size(); ++i) EXPECT_NEAR(small[i], 2.31 + 0.01 * static_cast<double>(i), 1e-12);
}

// The plot is 900 - 64 - 16 = 820 pixels wide and 420 - 34 - 44 = 342 high, from (64, 34).
TEST(Chart, CornersOfTheDataAreCornersOfThePlot) {
  const std::string svg =
      to_svg({.title = "t", .x_name = "step", .y_name = "loss", .curves = {{"a", {0, 5, 10}, {1, 2, 3}}}});
  EXPECT_EQ(path(svg, "c"), "M64 376.0L474 205.0L884 34.0");
  EXPECT_EQ(path(svg, "r"), "") << "a point a column has no extremes";
}

TEST(Chart, OneHighStepOfAMillionShows) {
  Curve curve{"a", {}, {}};
  for (int step = 0; step < 1000000; ++step) {
    curve.x.push_back(step);
    curve.y.push_back(step == 654321 ? 9 : 1);
  }
  const std::string svg = to_svg({.title = "", .x_name = "", .y_name = "", .curves = {curve}, .smooth = 1000});
  // Column 654321 / 999999 * 820 = 536.5 of the plot, from its top to its bottom.
  EXPECT_NE(path(svg, "r").find("M601 34.0V376.0"), std::string::npos) << path(svg, "r").substr(0, 200);
}

TEST(Chart, TheLineIsTheMeanOfThePointsBefore) {
  const Curve curve{"a", {0, 1, 2, 3}, {0, 4, 0, 4}};
  const std::string svg = to_svg({.title = "", .x_name = "", .y_name = "", .curves = {curve}, .smooth = 2});
  // 0, 2, 2, 2 of 0 .. 4, on 342 pixels.
  EXPECT_EQ(path(svg, "c"), "M64 376.0L337 205.0L611 205.0L884 205.0");
}

TEST(Chart, PointsThatAreNotFiniteAreLeftOut) {
  const Curve curve{"a", {0, 1, 2}, {1, kNaN, 3}};
  EXPECT_EQ(count(path(to_svg({.title = "", .x_name = "", .y_name = "", .curves = {curve}}), "c"), "L"), 1U);
  const Curve nothing{"b", {0}, {kNaN}};
  const std::string svg = to_svg({.title = "", .x_name = "", .y_name = "", .curves = {curve, nothing}});
  EXPECT_EQ(count(svg, "b (no points)"), 1U);
  EXPECT_THROW(to_svg({.title = "", .x_name = "", .y_name = "loss", .curves = {nothing}}), UserError);
  EXPECT_THROW(to_svg({.title = "", .x_name = "", .y_name = "loss", .curves = {}}), UserError);
}

TEST(Chart, LogarithmsLeaveOutWhatIsNotPositive) {
  const Curve curve{"a", {0, 11, 12, 13}, {0, 1, 10, 100}};
  const std::string svg = to_svg({.title = "", .x_name = "", .y_name = "", .curves = {curve}, .log_y = true});
  EXPECT_EQ(path(svg, "c"), "M64 376.0L474 205.0L884 34.0");
  for (const char* tick : {">1<", ">10<", ">100<"}) EXPECT_EQ(count(svg, tick), 1U) << tick;
}

TEST(Chart, OnePointAndConstantsAreDrawn) {
  EXPECT_NE(path(to_svg({.title = "", .x_name = "", .y_name = "", .curves = {{"a", {3}, {0}}}}), "c"), "");
  EXPECT_NE(path(to_svg({.title = "", .x_name = "", .y_name = "", .curves = {{"a", {1, 2}, {5, 5}}}}), "c"), "");
}

TEST(Chart, LabelsAreText) {
  const std::string svg =
      to_svg({.title = "<b>&\x01", .x_name = "", .y_name = "", .curves = {{"</svg>", {1, 2}, {1, 2}}}});
  EXPECT_EQ(count(svg, "&lt;b&gt;&amp; <"), 1U);
  EXPECT_EQ(count(svg, "</svg>"), 1U);
}

TEST(Chart, TwentyCurvesDiffer) {
  Chart chart{.title = "", .x_name = "", .y_name = "", .curves = {}};
  for (int i = 0; i < 20; ++i) chart.curves.push_back({std::to_string(i), {0, 1}, {0, 1.0 + i}});
  const std::string svg = to_svg(chart);
  EXPECT_EQ(count(svg, "stroke=\"#0072b2\" d="), 2U) << "line and legend of the first alone";
  EXPECT_EQ(count(svg, "stroke-dasharray=\"7 4\""), 16U);
}

}  // namespace chart_test
}  // namespace espalier::report
