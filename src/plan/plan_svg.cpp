// The picture that `espalier plan --svg` writes: stages over time, and what a rank of each stage holds.
#include <algorithm>
#include <array>

#include "base/format.h"
#include "plan/run_plan.h"

namespace espalier::plan {
namespace {

constexpr double kLeft = 64, kRowHeight = 22, kTextHeight = 14, kPlotWidth = 900, kMargin = 12;
// Least width of one forward pass: a long schedule makes a wider picture.
constexpr double kLeastUnit = 3;

struct Series {
  const char* css;
  const char* colour;
  const char* name;
};
constexpr std::array<Series, 3> kActions = {
    {{"f", "#4c78a8", "forward"}, {"b", "#54a24b", "backward"}, {"w", "#f2a541", "weight gradients"}}};
constexpr std::array<Series, 6> kBytes = {{{"p", "#4c78a8", "weights"},
                                           {"g", "#54a24b", "gradients"},
                                           {"o", "#f2a541", "optimizer"},
                                           {"a", "#b279a2", "activations"},
                                           {"k", "#9d9d9d", "workspace"},
                                           {"z", "#e45756", "gathered weights"}}};

std::string number(double value) { return format_printf("%.6g", value); }

std::string rectangle(const char* css, double x, double y, double width, double height) {
  return concat("<rect class=\"", css, "\" x=\"", number(x), "\" y=\"", number(y), "\" width=\"", number(width),
                "\" height=\"", number(height), "\"/>\n");
}

std::string label(double x, double y, const std::string& text, const char* anchor = "start") {
  return concat("<text x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"", anchor, "\">", text, "</text>\n");
}

// A later chunk's forward and backward are lighter.
const char* css_of(const Action& action) {
  const char* const dark = kActions[static_cast<size_t>(action.kind)].css;
  if (action.chunk % 2 == 0) return dark;
  return action.kind == Action::Kind::kForward ? "f2" : action.kind == Action::Kind::kBackward ? "b2" : "w";
}

struct Picture {
  std::string body;
  double width = kLeft + kPlotWidth + kMargin, y = kMargin;

  void heading(const std::string& text) {
    body +=
        concat("<text class=\"h\" x=\"", number(kMargin), "\" y=\"", number(y + kTextHeight), "\">", text, "</text>\n");
    y += kRowHeight;
  }
  template <size_t N>
  void legend(const std::array<Series, N>& kinds, size_t shown) {
    double x = kLeft;
    for (size_t kind = 0; kind < shown; ++kind) {
      body += rectangle(kinds[kind].css, x, y + 3, 12, 12) + label(x + 17, y + kTextHeight, kinds[kind].name);
      x += 30 + 7.5 * static_cast<double>(std::string(kinds[kind].name).size());
    }
    y += kRowHeight;
  }
};

void draw_schedule(const RunPlan& plan, Picture& picture) {
  const double end = plan.simulation.end;
  double shortest = end;
  for (const auto& spans : plan.simulation.spans)
    for (const Span& span : spans) shortest = std::min(shortest, span.end - span.start);
  const double scale = std::max(kPlotWidth / end, kLeastUnit / shortest);
  picture.width = std::max(picture.width, kLeft + end * scale + kMargin);
  picture.heading(concat(to_string(plan.run.schedule), ", ", plan.num_micro_batches,
                         " micro-batches: ", format_fixed(100 * plan.simulation.bubble_share, 1), " % idle"));
  for (size_t stage = 0; stage < plan.tables.size(); ++stage) {
    picture.body += label(kLeft - 8, picture.y + kTextHeight, concat("stage ", stage), "end");
    picture.body += rectangle("i", kLeft, picture.y, end * scale, kRowHeight - 3);
    for (size_t i = 0; i < plan.tables[stage].size(); ++i) {
      const Action& action = plan.tables[stage][i];
      const Span& span = plan.simulation.spans[stage][i];
      const double x = kLeft + span.start * scale, width = (span.end - span.start) * scale;
      picture.body += rectangle(css_of(action), x, picture.y, std::max(width - 0.5, 0.5), kRowHeight - 3);
      const std::string name = std::to_string(action.micro_batch);
      if (width >= 4 + 6.5 * static_cast<double>(name.size()))
        picture.body += concat("<text class=\"n\" x=\"", number(x + width / 2), "\" y=\"", number(picture.y + 13.5),
                               "\">", name, "</text>\n");
    }
    picture.y += kRowHeight;
  }
  const bool splits = plan.run.schedule == ScheduleKind::kZeroBubble;
  picture.legend(kActions, splits ? 3 : 2);
}

void draw_memory(const RunPlan& plan, std::optional<int64_t> limit, Picture& picture) {
  const double most = plan.memory.largest().peak();
  const double scale = (kPlotWidth - 90) / std::max(most, limit ? static_cast<double>(*limit) : 0.0);
  picture.y += kRowHeight / 2;
  const std::string line = limit ? concat("; red line: ", format_bytes(static_cast<double>(*limit))) : "";
  picture.heading("a rank of each stage holds, at most" + line);
  const double top = picture.y;
  for (size_t stage = 0; stage < plan.memory.stages.size(); ++stage) {
    const StageMemory& memory = plan.memory.stages[stage];
    const std::array<double, 6> bytes = {memory.weights,     memory.gradients, memory.optimizer,
                                         memory.activations, memory.workspace, memory.gathered};
    picture.body += label(kLeft - 8, picture.y + kTextHeight, concat("stage ", stage), "end");
    double x = kLeft;
    for (size_t kind = 0; kind < bytes.size(); ++kind) {
      if (bytes[kind] == 0) continue;
      picture.body += rectangle(kBytes[kind].css, x, picture.y, bytes[kind] * scale, kRowHeight - 3);
      x += bytes[kind] * scale;
    }
    picture.body += label(x + 6, picture.y + kTextHeight, format_bytes(memory.peak()));
    picture.y += kRowHeight;
  }
  if (limit) {
    const std::string x = number(kLeft + static_cast<double>(*limit) * scale);
    picture.body += concat("<line class=\"l\" x1=\"", x, "\" x2=\"", x, "\" y1=\"", number(top - 4), "\" y2=\"",
                           number(picture.y), "\"/>\n");
  }
  picture.legend(kBytes, plan.memory.stages[0].gathered > 0 ? 6 : 5);
}

template <size_t N>
std::string colours(const std::array<Series, N>& kinds) {
  std::string text;
  for (const Series& kind : kinds) text += concat(".", kind.css, "{fill:", kind.colour, "}");
  return text;
}

}  // namespace

std::string to_svg(const RunPlan& plan, std::optional<int64_t> memory_limit) {
  Picture picture;
  if (plan.partition.num_stages > 1) draw_schedule(plan, picture);
  draw_memory(plan, memory_limit, picture);
  const std::string width = number(picture.width), height = number(picture.y + kMargin);
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
                "\" viewBox=\"0 0 ", width, " ", height, "\">\n<style>text{font:12px sans-serif;fill:#222}",
                ".h{font-weight:bold}.n{fill:#fff;font-size:11px;text-anchor:middle}.i{fill:#e8e8e8}.f2{fill:#9ecae9}",
                ".b2{fill:#a7d7a0}.l{stroke:#c00;stroke-width:2}", colours(kActions), colours(kBytes),
                "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", picture.body, "</svg>\n");
}

}  // namespace espalier::plan
