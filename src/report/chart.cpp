#include "report/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/format.h"

namespace espalier::report {
namespace {

constexpr double kLeft = 64, kRight = 16, kTop = 34, kBottom = 44, kLine = 18;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Distinguishable by people who do not see all colours (Okabe and Ito 2008), and by dashes after the eighth.
constexpr std::array<const char*, 8> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#56b4e9", "#e69f00", "#8c6d31", "#7f7f7f"};
constexpr std::array<const char*, 3> kDashes = {"", " stroke-dasharray=\"7 4\"", " stroke-dasharray=\"2 3\""};

std::string number(double value) { return format_printf("%.6g", value); }

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      // XML allows no other byte below a blank.
      default: result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return result;
}

std::string label(double x, double y, const std::string& text, const char* anchor, const std::string& more = "") {
  return concat("<text x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"", anchor, "\"", more, ">",
                escaped(text), "</text>\n");
}

struct Point {
  double x = 0, y = 0;
};

std::vector<Point> drawable(const Curve& curve, bool log_y) {
  std::vector<Point> points;
  for (size_t i = 0; i < std::min(curve.x.size(), curve.y.size()); ++i) {
    const double y = log_y ? std::log10(curve.y[i]) : curve.y[i];
    if (std::isfinite(curve.x[i]) && std::isfinite(y)) points.push_back({curve.x[i], y});
  }
  return points;
}

// Of each point and those before it, at most `count` in all.
std::vector<Point> running_means(const std::vector<Point>& points, int64_t count) {
  std::vector<Point> means;
  std::vector<double> sums = {0};  // of the points before each
  for (const Point& point : points) {
    sums.push_back(sums.back() + point.y);
    const size_t end = sums.size() - 1, first = end > static_cast<size_t>(count) ? end - static_cast<size_t>(count) : 0;
    means.push_back({point.x, (sums[end] - sums[first]) / static_cast<double>(end - first)});
  }
  return means;
}

struct Range {
  double low = kInfinity, high = -kInfinity;
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void widen_if_point() {
    if (low < high) return;
    const double around = low == 0 ? 1 : std::abs(low) * 0.05;
    low -= around;
    high += around;
  }
};

class Picture {
 public:
  explicit Picture(const Chart& chart) : chart_(chart) {
    for (const Curve& curve : chart.curves) points_.push_back(drawable(curve, chart.log_y));
    for (const std::vector<Point>& points : points_)
      for (const Point& point : points) {
        x_.take(point.x);
        y_.take(point.y);
      }
    if (x_.low > x_.high)
      throw UserError(concat("there is no point of '", chart.y_name, "' to draw"), ExitCode::kMissingInput);
    x_.widen_if_point();
    y_.widen_if_point();
    legend_height_ = kLine * static_cast<double>((chart.curves.size() + 2) / 3);
  }

  std::string svg() {
    axes();
    for (size_t number = 0; number < points_.size(); ++number) draw(number);
    legend();
    const std::string width = number(chart_.width), height = number(chart_.height + legend_height_);
    return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
                  "\" viewBox=\"0 0 ", width, " ", height,
                  "\">\n<style>text{font:12px sans-serif;fill:#222}.t{font-weight:bold}.g{stroke:#ddd}"
                  ".c{fill:none;stroke-width:1.6;stroke-linejoin:round}.r{fill:none;stroke-width:1;opacity:.3}"
                  "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
                  body_, "</svg>\n");
  }

 private:
  double plot_width() const { return chart_.width - kLeft - kRight; }
  double plot_height() const { return chart_.height - kTop - kBottom; }
  double across(double x) const { return kLeft + (x - x_.low) / (x_.high - x_.low) * plot_width(); }
  double down(double y) const { return kTop + (y_.high - y) / (y_.high - y_.low) * plot_height(); }

  void axes() {
    body_ += label(kLeft, 20, chart_.title, "start", " class=\"t\"");
    for (const double x : round_ticks(x_.low, x_.high, 8)) {
      line(across(x), kTop, across(x), kTop + plot_height());
      body_ += label(across(x), kTop + plot_height() + 16, format_printf("%.6g", x), "middle");
    }
    for (const double y : value_ticks()) {
      const double at = down(chart_.log_y ? std::log10(y) : y);
      line(kLeft, at, kLeft + plot_width(), at);
      body_ += label(kLeft - 6, at + 4, format_printf("%.6g", y), "end");
    }
    body_ += label(kLeft + plot_width() / 2, kTop + plot_height() + 34, chart_.x_name, "middle");
    const double middle = kTop + plot_height() / 2;
    body_ += label(14, middle, chart_.y_name, "middle", concat(" transform=\"rotate(-90 14 ", number(middle), ")\""));
  }

  // Values, not their logarithms.
  std::vector<double> value_ticks() const {
    if (!chart_.log_y) return round_ticks(y_.low, y_.high, 7);
    std::vector<double> ticks;
    const bool decades_alone = y_.high - y_.low > 4;
    for (double power = std::floor(y_.low); power <= y_.high; ++power)
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double at = power + std::log10(digit);
        if (at >= y_.low && at <= y_.high && (digit == 1 || !decades_alone)) ticks.push_back(std::pow(10, at));
      }
    if (ticks.size() >= 2) return ticks;
    return round_ticks(std::pow(10, y_.low), std::pow(10, y_.high), 7);
  }

  void line(double x1, double y1, double x2, double y2) {
    body_ += concat("<line class=\"g\" x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"", number(x2), "\" y2=\"",
                    number(y2), "\"/>\n");
  }

  std::string stroke(size_t number) const {
    return concat(" stroke=\"", kColours[number % kColours.size()], "\"",
                  kDashes[number / kColours.size() % kDashes.size()]);
  }

  void draw(size_t number) {
    const std::vector<Point>& points = points_[number];
    const auto columns = static_cast<size_t>(plot_width()) + 1;
    std::vector<Range> ranges(columns), means(columns);
    std::vector<double> sums(columns);
    std::vector<int64_t> counts(columns);
    const auto column_of = [&](double x) { return static_cast<size_t>(std::lround(across(x) - kLeft)); };
    for (const Point& point : points) ranges[column_of(point.x)].take(point.y);
    for (const Point& mean : running_means(points, chart_.smooth)) {
      sums[column_of(mean.x)] += mean.y;
      ++counts[column_of(mean.x)];
    }
    std::string extremes, path;
    for (size_t column = 0; column < columns; ++column) {
      if (counts[column] == 0) continue;
      const double x = kLeft + static_cast<double>(column), low = ranges[column].low, high = ranges[column].high;
      const double mean = sums[column] / static_cast<double>(counts[column]);
      if (low < high || mean != low)
        extremes += concat("M", espalier::report::number(x), " ", format_fixed(down(high), 1), "V",
                           format_fixed(std::max(down(low), down(high) + 1), 1));
      path += concat(path.empty() ? "M" : "L", espalier::report::number(x), " ", format_fixed(down(mean), 1));
    }
    if (path.find('L') == std::string::npos && !path.empty()) path += "h1";  // a single point would not show
    if (!extremes.empty()) body_ += concat("<path class=\"r\"", stroke(number), " d=\"", extremes, "\"/>\n");
    if (!path.empty()) body_ += concat("<path class=\"c\"", stroke(number), " d=\"", path, "\"/>\n");
  }

  // Three to a line.
  void legend() {
    for (size_t i = 0; i < chart_.curves.size(); ++i) {
      const double x = kLeft + static_cast<double>(i % 3) * plot_width() / 3;
      const double y = chart_.height + kLine * static_cast<double>(i / 3);
      body_ += concat("<path class=\"c\"", stroke(i), " d=\"M", number(x), " ", number(y - 4), "h22\"/>\n");
      const char* const none = points_[i].empty() ? " (no points)" : "";
      body_ += label(x + 28, y, chart_.curves[i].label + none, "start");
    }
  }

  const Chart& chart_;
  std::vector<std::vector<Point>> points_;
  Range x_, y_;
  double legend_height_ = 0;
  std::string body_;
};

}  // namespace

std::vector<double> round_ticks(double low, double high, int most) {
  const double raw = (high - low) / std::max(1, most);
  double step = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (step * factor >= raw * (1 - 1e-9)) {
      step *= factor;
      break;
    }
  std::vector<double> ticks;
  for (double n = std::ceil(low / step - 1e-9); n * step <= high + step * 1e-9; ++n)
    ticks.push_back(n == 0 ? 0 : n * step);  // no -0
  return ticks;
}

std::string to_svg(const Chart& chart) { return Picture(chart).svg(); }

}  // namespace espalier::report
