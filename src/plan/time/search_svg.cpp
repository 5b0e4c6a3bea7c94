// The picture that `espalier plan --search --svg` writes: where the time of a step goes in the fastest layouts, and
// what they need of a device's memory.
#include <algorithm>
#include <array>

#include "base/format.h"
#include "plan/internal/svg_picture.h"
#include "plan/time/search.h"

namespace espalier::plan {
namespace {

using internal::BarKind;
using internal::SvgPicture;

constexpr double kBarsLeft = 400;

constexpr std::array<BarKind, 8> kTime = {{{"m", "#4c78a8", "matrix products"},
                                           {"a", "#72b7b2", "attention"},
                                           {"v", "#9d9d9d", "moving bytes"},
                                           {"r", "#b279a2", "recompute"},
                                           {"t", "#54a24b", "messages within layers"},
                                           {"p", "#e45756", "messages between stages, bubble"},
                                           {"d", "#f2a541", "messages between copies"},
                                           {"o", "#79706e", "optimizer"}}};

std::array<double, kTime.size()> seconds_of(const StepParts& parts) {
  return {parts.matrices,
          parts.attention,
          parts.moving,
          parts.recompute,
          parts.tensor + parts.context,
          parts.pipeline + parts.bubble,
          parts.data,
          parts.optimizer};
}

constexpr BarKind kMemory = {"b", "#4c78a8", "memory of a device of the fullest stage"};

void draw_times(const SearchResult& result, SvgPicture& picture) {
  const double scale = (SvgPicture::kPlotWidth - 160) / result.best.back().step.seconds;
  picture.heading("Seconds of a step, predicted, on the busiest stage");
  for (const SearchChoice& choice : result.best) {
    picture.row_name(concat(to_string(choice.point), ", data ", choice.data));
    double x = kBarsLeft;
    const auto seconds = seconds_of(choice.step.parts);
    for (size_t kind = 0; kind < seconds.size(); ++kind) {
      picture.bar(kTime[kind].css, x, seconds[kind] * scale);
      x += seconds[kind] * scale;
    }
    picture.text(x + 6, concat(format_printf("%.4g", choice.step.seconds), " s, ",
                               format_fixed(choice.step.model_flops / 1e12, 1), " TFLOP/s"));
    picture.end_row();
  }
  picture.legend(kTime);
}

void draw_memory(const SearchResult& result, const SearchSpace& space, SvgPicture& picture) {
  const double scale = (SvgPicture::kPlotWidth - 160) / space.memory_bytes;  // all of them fit
  picture.skip(SvgPicture::kRowHeight / 2);
  picture.heading(concat("Memory at most; red line: ", format_bytes(space.memory_bytes)));
  const double top = picture.y();
  for (const SearchChoice& choice : result.best) {
    picture.row_name(concat(to_string(choice.point), ", data ", choice.data));
    picture.bar(kMemory.css, kBarsLeft, choice.peak_bytes * scale);
    picture.text(kBarsLeft + choice.peak_bytes * scale + 6, format_bytes(choice.peak_bytes));
    picture.end_row();
  }
  picture.mark(kBarsLeft + space.memory_bytes * scale, top);
  picture.legend(std::span(&kMemory, 1));
}

}  // namespace

std::string to_svg(const SearchResult& result, const SearchSpace& space) {
  SvgPicture picture(kBarsLeft);
  picture.heading(concat(result.num_tried, " ways to use ", space.num_devices, " devices: ", result.num_fitting, " fit",
                         result.best.empty() ? "" : concat("; the fastest ", result.best.size(), " of them")));
  if (!result.best.empty()) {
    draw_times(result, picture);
    draw_memory(result, space, picture);
  }
  return picture.document("");
}

}  // namespace espalier::plan
