#include <algorithm>
#include <cstdio>

#include "apps/print_json.h"
#include "apps/runs/commands.h"
#include "base/console.h"
#include "base/format.h"
#include "base/options.h"
#include "report/plot.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

std::string field(const char* name, const std::string& value) {
  return value.empty() ? "" : format_printf("  %-12s ", name) + value + "\n";
}

std::string status_text(const report::Run& run) {
  const Style style = run.status == report::RunStatus::kFailed || run.status == report::RunStatus::kDied ? Style::kRed
                      : run.status == report::RunStatus::kRunning || run.status == report::RunStatus::kFinished
                          ? Style::kGreen
                          : Style::kYellow;
  return styled(Stream::kOutput, style, report::to_string(run.status)) +
         (run.status_detail.empty() || run.status == report::RunStatus::kRunning ? "" : ": " + run.status_detail);
}

std::string losses_text(const RunFigures& figures) {
  if (!figures.loss) return "";
  std::string text = loss_text(figures.loss);
  if (figures.first_loss) text += ", at the start " + loss_text(figures.first_loss);
  if (figures.lowest_loss)
    text += concat(", lowest ", loss_text(figures.lowest_loss), " at step ", format_count(*figures.lowest_loss_step));
  return text;
}

std::string checkpoints_text(const report::Run& run) {
  constexpr size_t kMost = 6;
  if (run.checkpoints.empty()) return "none";
  std::vector<std::string> steps;
  for (const int64_t step : run.checkpoints) steps.push_back(format_count(step));
  const bool shortened = steps.size() > kMost;
  if (shortened) steps.erase(steps.begin(), steps.end() - kMost);
  return concat(run.checkpoints.size(), shortened ? ", the last ones after step " : ", after step ", join(steps, "; "));
}

std::string speed_text(const RunFigures& figures) {
  if (!figures.tokens_per_second || !figures.step_seconds) return "";
  return concat(format_count(static_cast<int64_t>(*figures.tokens_per_second)), " tokens/s, ",
                format_printf("%.3g", *figures.step_seconds), " s a step");
}

std::string evaluations_text(const report::Metrics& metrics) {
  std::string text;
  const Json kinds = last_evaluations(metrics);  // items() of a temporary would be gone
  for (const auto& [kind, sets] : kinds.items())
    for (const auto& [set, values] : sets.items()) {
      std::string line = set + ":";
      for (const auto& [name, value] : values.items())
        if (name != "step") line += concat(" ", name, " ", format_printf("%.5g", value.get<double>()));
      text += field(kind.c_str(), line + " after step " + format_count(values["step"].get<int64_t>()));
    }
  return text;
}

std::string alerts_text(const report::Run& run) {
  std::string text;
  for (const report::RunEvent& event : run.events)
    if (event.event == "alert" || event.event == "error" || event.event == "save failed" || event.event == "hang" ||
        event.event == "failure" || event.event == "straggler" || event.event == "roll back")
      text += field(event.event.c_str(), concat("step ", format_count(event.step), ": ", event.detail));
  return text;
}

std::string describe(const report::Run& run, const report::Metrics& metrics) {
  const RunFigures figures = figures_of(metrics);
  std::string text = styled(Stream::kOutput, Style::kBold, run.folder.string()) + "\n";
  text += field("status", status_text(run)) + field("steps", steps_text(run, figures));
  text += field("loss", losses_text(figures)) + evaluations_text(metrics) + field("speed", speed_text(figures));
  if (figures.consumed_tokens) text += field("tokens", format_count(static_cast<int64_t>(*figures.consumed_tokens)));
  text += field("checkpoints", checkpoints_text(run));
  text += field("started", time_ago(run.started)) + field("changed", time_ago(run.changed)) + alerts_text(run);
  if (metrics.num_bad_lines > 0)
    text += field("records",
                  concat(format_count(metrics.num_bad_lines), " lines of metrics.jsonl are cut off or not JSON"));
  return text;
}

std::string loss_plot(const report::Metrics& metrics, std::optional<int64_t> width, int64_t height) {
  const std::string name = metrics.loss_column();
  if (name.empty()) return "";
  const report::PlotSize size{static_cast<int>(width.value_or(terminal_width(Stream::kOutput, 100))),
                              static_cast<int>(height), report::locale_is_utf8()};
  const std::string curve = report::plot(metrics.steps, metrics.columns.at(name), size);
  return curve.empty() ? "" : "\n" + std::string(11, ' ') + name + "\n" + curve;
}

}  // namespace

int runs_show_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> folders;
  std::optional<int64_t> width;
  int64_t height = 16;
  bool json = false;
  OptionTable table("espalier runs show", "Shows one run: its status, its figures, and its loss as a curve.");
  table.positional("FOLDER", folders, "run folder (--save of the run)", 1, 1);
  table.add("--width", width, "columns of the curve").minimum(24).maximum(1000).default_text("the terminal's");
  table.add("--height", height, "lines of the curve").minimum(4).maximum(200);
  table.add("--json", json, "one JSON object, with the steps and losses of the curve");
  if (!table.parse(arguments)) return 0;
  const report::Run run = report::read_run(folders[0]);
  const report::Metrics metrics = report::read_metrics(run.folder / "metrics.jsonl", figure_columns());
  if (json) {
    const RunFigures figures = figures_of(metrics);
    Json object = to_json(run, figures);
    object["evaluations"] = last_evaluations(metrics);
    object["options"] = run.options;
    object["bad_lines"] = metrics.num_bad_lines;
    Json events = Json::array();
    for (const report::RunEvent& event : run.events)
      events.push_back({{"time", event.time}, {"event", event.event}, {"step", event.step}, {"detail", event.detail}});
    object["events"] = events;
    object["steps"] = metrics.steps;
    const std::string name = metrics.loss_column();
    object["losses"] = name.empty() ? Json::array() : Json(metrics.columns.at(name));
    print_json(object);
    return 0;
  }
  std::fputs((describe(run, metrics) + loss_plot(metrics, width, height)).c_str(), stdout);
  return 0;
}

}  // namespace espalier
