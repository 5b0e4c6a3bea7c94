// Curves of several runs as one picture, in SVG without scripts, fonts or anything from elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::report {

struct Curve {
  std::string label;
  std::vector<double> x, y;  // equally long; x rising; points that are not finite are left out
};

struct Chart {
  std::string title, x_name, y_name;
  std::vector<Curve> curves;
  bool log_y = false;  // what is not positive is left out then
  // Points whose mean (on a logarithmic scale, of their logarithms) is drawn as the line. What is in a column of
  // pixels is drawn from its lowest to its highest point behind the line, whatever the mean, so that a single high step
  // stays visible.
  int64_t smooth = 1;
  double width = 900, height = 420;  // pixels, with axes and legend
};

// A curve of which no point is left is in the legend alone. Throws a UserError if none has a point.
std::string to_svg(const Chart& chart);

// At most about `most` round numbers (1, 2 or 5 times a power of ten apart) from low to high, which differ.
std::vector<double> round_ticks(double low, double high, int most);

}  // namespace espalier::report
