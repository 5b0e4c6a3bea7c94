// The picture that `espalier plan --svg` writes: stages over time, and what a rank of each stage holds.
#include <algorithm>
#include <array>

#include "base/format.h"
#include "plan/internal/svg_picture.h"
#include "plan/run_plan.h"

namespace espalier::plan {
namespace {

using internal::BarKind;
using internal::SvgPicture;

constexpr double kLeft = 64;
// Least width of one forward pass: a long schedule makes a wider picture.
constexpr double kLeastUnit = 3;

constexpr std::array<BarKind, 3> kActions = {
    {{"f", "#4c78a8", "forward"}, {"b", "#54a24b", "backward"}, {"w", "#f2a541", "weight gradients"}}};
constexpr std::array<BarKind, 6> kBytes = {{{"p", "#4c78a8", "weights"},
                                            {"g", "#54a24b", "gradients"},
                                            {"o", "#f2a541", "optimizer"},
                                            {"a", "#b279a2", "activations"},
                                            {"k", "#9d9d9d", "workspace"},
                                            {"z", "#e45756", "gathered weights"}}};

// A later chunk's forward and backward are lighter.
const char* css_of(const Action& action) {
  const char* const dark = kActions[static_cast<size_t>(action.kind)].css;
  if (action.chunk % 2 == 0) return dark;
  return action.kind == Action::Kind::kForward ? "f2" : action.kind == Action::Kind::kBackward ? "b2" : "w";
}

void draw_schedule(const RunPlan& plan, SvgPicture& picture) {
  const double end = plan.simulation.end;
  double shortest = end;
  for (const auto& spans : plan.simulation.spans)
    for (const Span& span : spans) shortest = std::min(shortest, span.end - span.start);
  const double scale = std::max(SvgPicture::kPlotWidth / end, kLeastUnit / shortest);
  picture.reach(kLeft + end * scale);
  picture.heading(concat(to_string(plan.run.schedule), ", ", plan.num_micro_batches,
                         " micro-batches: ", format_fixed(100 * plan.simulation.bubble_share, 1), " % idle"));
  for (size_t stage = 0; stage < plan.tables.size(); ++stage) {
    picture.row_name(concat("stage ", stage));
    picture.bar("i", kLeft, end * scale);
    for (size_t i = 0; i < plan.tables[stage].size(); ++i) {
      const Action& action = plan.tables[stage][i];
      const Span& span = plan.simulation.spans[stage][i];
      const double x = kLeft + span.start * scale, width = (span.end - span.start) * scale;
      picture.bar(css_of(action), x, std::max(width - 0.5, 0.5));
      const std::string name = std::to_string(action.micro_batch);
      if (width >= 4 + 6.5 * static_cast<double>(name.size())) picture.text_in_bar(x + width / 2, name);
    }
    picture.end_row();
  }
  const bool splits = plan.run.schedule == ScheduleKind::kZeroBubble;
  picture.legend(std::span(kActions).first(splits ? 3 : 2));
}

void draw_memory(const RunPlan& plan, std::optional<int64_t> limit, SvgPicture& picture) {
  const double most = plan.memory.largest().peak();
  const double scale = (SvgPicture::kPlotWidth - 90) / std::max(most, limit ? static_cast<double>(*limit) : 0.0);
  picture.skip(SvgPicture::kRowHeight / 2);
  const std::string line = limit ? concat("; red line: ", format_bytes(static_cast<double>(*limit))) : "";
  picture.heading("a rank of each stage holds, at most" + line);
  const double top = picture.y();
  for (size_t stage = 0; stage < plan.memory.stages.size(); ++stage) {
    const StageMemory& memory = plan.memory.stages[stage];
    const std::array<double, 6> bytes = {memory.weights,     memory.gradients, memory.optimizer,
                                         memory.activations, memory.workspace, memory.gathered};
    picture.row_name(concat("stage ", stage));
    double x = kLeft;
    for (size_t kind = 0; kind < bytes.size(); ++kind) {
      if (bytes[kind] == 0) continue;
      picture.bar(kBytes[kind].css, x, bytes[kind] * scale);
      x += bytes[kind] * scale;
    }
    picture.text(x + 6, format_bytes(memory.peak()));
    picture.end_row();
  }
  if (limit) picture.mark(kLeft + static_cast<double>(*limit) * scale, top);
  picture.legend(std::span(kBytes).first(plan.memory.stages[0].gathered > 0 ? 6 : 5));
}

}  // namespace

std::string to_svg(const RunPlan& plan, std::optional<int64_t> memory_limit) {
  SvgPicture picture(kLeft);
  if (plan.partition.num_stages > 1) draw_schedule(plan, picture);
  draw_memory(plan, memory_limit, picture);
  return picture.document(".i{fill:#e8e8e8}.f2{fill:#9ecae9}.b2{fill:#a7d7a0}");
}

}  // namespace espalier::plan
