// A curve as text: for a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::report {

struct PlotSize {
  int width = 80, height = 12;  // characters, with axes and their numbers; at least 24 by 4
  bool braille = true;          // dots of U+2800 (2 by 4 to a character); else one * to a character
};

// Lines of text with an axis at the left and one below. Where several points fall into a column their mean is drawn;
// points that are not finite are left out, as gaps. Empty where there is no finite point. No line is wider than
// `width`.
std::string plot(const std::vector<int64_t>& x, const std::vector<double>& y, const PlotSize& size);

// Whether the environment's locale writes UTF-8 (LC_ALL, LC_CTYPE, LANG).
bool locale_is_utf8();

}  // namespace espalier::report
