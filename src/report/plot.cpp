#include "report/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "base/format.h"

namespace espalier::report {
namespace {

// Points that are on or off, `across` by `down` of them to a character.
class Canvas {
 public:
  Canvas(int columns, int rows, bool braille)
      : columns_(columns), rows_(rows), braille_(braille), cells_(static_cast<size_t>(columns * rows)) {}

  int width() const { return columns_ * across(); }
  int height() const { return rows_ * down(); }

  void set(int x, int y) {  // y counts from the bottom
    const int from_top = height() - 1 - y;
    const int column = x / across(), row = from_top / down();
    // Bits of U+2800: 0 to 2 and 6 down the left, 3 to 5 and 7 down the right.
    static constexpr int kBits[2][4] = {{0, 1, 2, 6}, {3, 4, 5, 7}};
    const int bit = braille_ ? kBits[x % 2][from_top % 4] : 0;
    cells_[static_cast<size_t>(row * columns_ + column)] |= static_cast<uint8_t>(1 << bit);
  }

  std::string row(int number) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const uint8_t cell = cells_[static_cast<size_t>(number * columns_ + column)];
      if (cell == 0) {
        text += ' ';
      } else if (!braille_) {
        text += '*';
      } else {  // three bytes of UTF-8
        const int code = 0x2800 + cell;
        text += static_cast<char>(0xe0 | (code >> 12));
        text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
        text += static_cast<char>(0x80 | (code & 0x3f));
      }
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }

 private:
  int across() const { return braille_ ? 2 : 1; }
  int down() const { return braille_ ? 4 : 1; }

  int columns_, rows_;
  bool braille_;
  std::vector<uint8_t> cells_;
};

// The mean of the points of each column, if it has any.
std::vector<std::optional<double>> column_means(const std::vector<int64_t>& x, const std::vector<double>& y,
                                                int width) {
  std::vector<double> sums(static_cast<size_t>(width));
  std::vector<int64_t> counts(static_cast<size_t>(width));
  const double first = static_cast<double>(x.front()), span = std::max(1.0, static_cast<double>(x.back()) - first);
  for (size_t at = 0; at < x.size(); ++at) {
    if (!std::isfinite(y[at])) continue;
    const auto column = static_cast<size_t>(std::lround((static_cast<double>(x[at]) - first) / span * (width - 1)));
    sums[column] += y[at];
    ++counts[column];
  }
  std::vector<std::optional<double>> means(sums.size());
  for (size_t column = 0; column < sums.size(); ++column)
    if (counts[column] > 0) means[column] = sums[column] / static_cast<double>(counts[column]);
  return means;
}

// Neighbouring columns are joined, so that a curve with fewer points than columns is one, too.
void draw(Canvas& canvas, const std::vector<std::optional<double>>& means, double low, double high, bool joins) {
  const double span = high > low ? high - low : 1;
  const auto level = [&](double value) {
    return static_cast<int>(
        std::clamp(std::lround((value - low) / span * (canvas.height() - 1)), 0L, canvas.height() - 1L));
  };
  int last_x = -1, last_y = 0;
  for (int x = 0; x < canvas.width(); ++x) {
    const auto& mean = means[static_cast<size_t>(x)];
    if (!mean) continue;
    const int y = level(*mean);
    canvas.set(x, y);
    for (int between = last_x + 1; joins && last_x >= 0 && between < x; ++between)
      canvas.set(between, last_y + static_cast<int>(std::lround(static_cast<double>((y - last_y) * (between - last_x)) /
                                                                (x - last_x))));
    if (joins && last_x >= 0 && last_x == x - 1)
      for (int step = std::min(y, last_y) + 1; step < std::max(y, last_y); ++step) canvas.set(x, step);
    last_x = x, last_y = y;
  }
}

std::string right_aligned(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

}  // namespace

std::string plot(const std::vector<int64_t>& x, const std::vector<double>& y, const PlotSize& size) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double value : y)
    if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
  if (x.empty() || low > high) return "";
  constexpr int kLabel = 9;
  const int rows = std::max(4, size.height) - 2, columns = std::max(24, size.width) - kLabel - 2;
  Canvas canvas(columns, rows, size.braille);
  const auto means = column_means(x, y, canvas.width());
  low = std::numeric_limits<double>::infinity(), high = -low;  // of what is drawn
  for (const auto& mean : means)
    if (mean) low = std::min(low, *mean), high = std::max(high, *mean);
  draw(canvas, means, low, high, /*joins=*/true);
  const char* const bar = size.braille ? "│" : "|";
  std::string text;
  for (int row = 0; row < rows; ++row) {
    const double value = high - (high - low) * row / std::max(1, rows - 1);
    const bool labelled = row == 0 || row == rows - 1 || row == rows / 2;
    text += right_aligned(labelled ? format_printf("%.4g", value) : "", kLabel) + " " + bar + canvas.row(row) + "\n";
  }
  text += std::string(kLabel + 1, ' ') + (size.braille ? "└" : "+");
  for (int column = 0; column < columns; ++column) text += size.braille ? "─" : "-";
  const std::string first = format_count(x.front()), last = format_count(x.back());
  const std::string title = "step";
  const size_t room = static_cast<size_t>(columns) > first.size() + last.size()
                          ? static_cast<size_t>(columns) - first.size() - last.size()
                          : 1;
  const size_t before = room > title.size() ? (room - title.size()) / 2 : 0;
  text += "\n" + std::string(kLabel + 2, ' ') + first;
  text += room > title.size() + 2 ? std::string(before, ' ') + title + std::string(room - title.size() - before, ' ')
                                  : std::string(room, ' ');
  return text + last + "\n";
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string locale = value;
    return locale.find("UTF-8") != std::string::npos || locale.find("utf8") != std::string::npos ||
           locale.find("utf-8") != std::string::npos;
  }
  return false;
}

}  // namespace espalier::report
