// Bars with labels, of which the pictures of plans are made.
#pragma once

#include <span>
#include <string>

namespace espalier::plan::internal {

// A kind of bar: its class in the style sheet, its colour, its name in the legend.
struct BarKind {
  const char* css;
  const char* colour;
  const char* name;
};

// The shortest text that says it to 6 digits.
std::string svg_number(double value);

class SvgPicture {
 public:
  static constexpr double kPlotWidth = 900, kMargin = 12, kRowHeight = 22, kTextHeight = 14;

  // `left`: where bars begin; names of rows are to the left of it.
  explicit SvgPicture(double left) : left_(left) { reach(left + kPlotWidth); }

  double left() const { return left_; }
  double y() const { return y_; }
  void skip(double height) { y_ += height; }

  // In the row at y().
  void bar(const char* css, double x, double width);
  void text(double x, const std::string& text, const char* anchor = "start");
  void text_in_bar(double middle, const std::string& text);
  void row_name(const std::string& name) { text(left_ - 8, name, "end"); }
  // The first ends the row, the others take one each.
  void end_row() { y_ += kRowHeight; }
  void heading(const std::string& text);
  void legend(std::span<const BarKind> kinds);
  // A line that marks `x` in the rows from `top` to here.
  void mark(double x, double top);

  // The picture is at least as wide as this and a margin.
  void reach(double x) { width_ = x + kMargin > width_ ? x + kMargin : width_; }

  // The whole file. `style`: rules beside those of text, heading, mark and the kinds of all legends.
  std::string document(const std::string& style) const;

 private:
  double left_, width_ = 0, y_ = kMargin;
  std::string body_, colours_;
};

}  // namespace espalier::plan::internal
