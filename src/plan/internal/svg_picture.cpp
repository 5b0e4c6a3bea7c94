#include "plan/internal/svg_picture.h"

#include "base/format.h"

namespace espalier::plan::internal {
namespace {

constexpr double kGap = 3;  // between two rows

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else
      result += c;
  }
  return result;
}

}  // namespace

std::string svg_number(double value) { return format_printf("%.6g", value); }

void SvgPicture::bar(const char* css, double x, double width) {
  body_ += concat("<rect class=\"", css, "\" x=\"", svg_number(x), "\" y=\"", svg_number(y_), "\" width=\"",
                  svg_number(width), "\" height=\"", svg_number(kRowHeight - kGap), "\"/>\n");
}

void SvgPicture::text(double x, const std::string& text, const char* anchor) {
  body_ += concat("<text x=\"", svg_number(x), "\" y=\"", svg_number(y_ + kTextHeight), "\" text-anchor=\"", anchor,
                  "\">", escaped(text), "</text>\n");
}

void SvgPicture::text_in_bar(double middle, const std::string& text) {
  body_ += concat("<text class=\"n\" x=\"", svg_number(middle), "\" y=\"", svg_number(y_ + kTextHeight - 0.5), "\">",
                  escaped(text), "</text>\n");
}

void SvgPicture::heading(const std::string& text) {
  body_ += concat("<text class=\"h\" x=\"", svg_number(kMargin), "\" y=\"", svg_number(y_ + kTextHeight), "\">",
                  escaped(text), "</text>\n");
  end_row();
}

void SvgPicture::legend(std::span<const BarKind> kinds) {
  constexpr double kSample = 12, kCharacter = 7.5;
  double x = left_;
  for (const BarKind& kind : kinds) {
    body_ += concat("<rect class=\"", kind.css, "\" x=\"", svg_number(x), "\" y=\"", svg_number(y_ + kGap),
                    "\" width=\"", kSample, "\" height=\"", kSample, "\"/>\n");
    text(x + kSample + 5, kind.name);
    x += 30 + kCharacter * static_cast<double>(std::string(kind.name).size());
    colours_ += concat(".", kind.css, "{fill:", kind.colour, "}");
  }
  reach(x);
  end_row();
}

void SvgPicture::mark(double x, double top) {
  body_ += concat("<line class=\"l\" x1=\"", svg_number(x), "\" x2=\"", svg_number(x), "\" y1=\"", svg_number(top - 4),
                  "\" y2=\"", svg_number(y_), "\"/>\n");
}

std::string SvgPicture::document(const std::string& style) const {
  const std::string width = svg_number(width_), height = svg_number(y_ + kMargin);
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
                "\" viewBox=\"0 0 ", width, " ", height, "\">\n<style>text{font:12px sans-serif;fill:#222}",
                ".h{font-weight:bold}.n{fill:#fff;font-size:11px;text-anchor:middle}.l{stroke:#c00;stroke-width:2}",
                style, colours_, "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", body_, "</svg>\n");
}

}  // namespace espalier::plan::internal
