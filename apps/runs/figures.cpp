#include <algorithm>
#include <chrono>
#include <cmath>

#include "apps/runs/commands.h"
#include "base/console.h"
#include "base/format.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> last_finite(const std::vector<double>& values) {
  const auto found = std::find_if(values.rbegin(), values.rend(), [](double value) { return std::isfinite(value); });
  return found == values.rend() ? std::nullopt : std::optional(*found);
}

// Of the last steps: the first of a process, and those that save, are slow.
std::optional<double> median_of_last(const report::Metrics& metrics, const char* name) {
  constexpr size_t kMost = 100;
  const auto column = metrics.columns.find(name);
  if (column == metrics.columns.end()) return std::nullopt;
  std::vector<double> values;
  for (auto at = column->second.rbegin(); at != column->second.rend() && values.size() < kMost; ++at)
    if (std::isfinite(*at)) values.push_back(*at);
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

std::vector<std::string> figure_columns() { return {"tokens_per_second", "step_seconds", "consumed_tokens"}; }

RunFigures figures_of(const report::Metrics& metrics) {
  RunFigures figures;
  if (metrics.steps.empty()) return figures;
  figures.step = metrics.steps.back();
  figures.tokens_per_second = median_of_last(metrics, "tokens_per_second");
  figures.step_seconds = median_of_last(metrics, "step_seconds");
  figures.consumed_tokens = last_finite(metrics.columns.at("consumed_tokens"));
  const std::string name = metrics.loss_column();
  if (name.empty()) return figures;
  const std::vector<double>& losses = metrics.columns.at(name);
  figures.loss = losses.back();  // also NaN: the run's last word
  for (size_t at = 0; at < losses.size(); ++at) {
    if (!std::isfinite(losses[at])) continue;
    if (!figures.first_loss) figures.first_loss = losses[at];
    if (figures.lowest_loss && *figures.lowest_loss <= losses[at]) continue;
    figures.lowest_loss = losses[at];
    figures.lowest_loss_step = metrics.steps[at];
  }
  return figures;
}

Json to_json(const report::Run& run, const RunFigures& figures) {
  return {{"folder", run.folder.string()},
          {"status", report::to_string(run.status)},
          {"detail", run.status_detail},
          {"step", json_of(figures.step)},
          {"num_steps", json_of(run.num_steps)},
          {"loss", json_of(figures.loss)},
          {"tokens_per_second", json_of(figures.tokens_per_second)},
          {"step_seconds", json_of(figures.step_seconds)},
          {"consumed_tokens", json_of(figures.consumed_tokens)},
          {"checkpoints", run.checkpoints},
          {"started", json_of(run.started)},
          {"changed", json_of(run.changed)}};
}

Json last_evaluations(const report::Metrics& metrics) {
  Json object = Json::object();
  for (const report::Evaluation& evaluation : metrics.evaluations) {  // in the order of steps: the last one stays
    object[evaluation.kind][evaluation.set]["step"] = evaluation.step;
    object[evaluation.kind][evaluation.set][evaluation.name] = evaluation.value;
  }
  return object;
}

std::string loss_text(std::optional<double> loss) { return loss ? format_printf("%.4f", *loss) : "-"; }

std::string steps_text(const report::Run& run, const RunFigures& figures) {
  // A run whose records were moved away still has its checkpoints.
  const std::optional<int64_t> last = run.checkpoints.empty() ? std::nullopt : std::optional(run.checkpoints.back());
  const std::optional<int64_t> step = figures.step ? figures.step : last;
  if (!step) return "-";
  return format_count(*step) + (run.num_steps ? " of " + format_count(*run.num_steps) : "");
}

std::string time_ago(std::optional<double> time) {
  if (!time) return "-";
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const double seconds = std::max(0.0, now - *time);
  if (seconds < 1) return "now";
  constexpr double kDay = 86400;
  return (seconds < 2 * kDay ? format_duration(seconds)
                             : format_count(static_cast<int64_t>(seconds / kDay)) + " days") +
         " ago";
}

std::string aligned(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& right) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t cell = 0; cell < row.size(); ++cell) {
      if (cell == widths.size()) widths.push_back(0);
      widths[cell] = std::max(widths[cell], display_width(row[cell]));
    }
  std::string text;
  for (size_t number = 0; number < rows.size(); ++number) {
    std::string line;
    for (size_t cell = 0; cell < rows[number].size(); ++cell) {
      const std::string& word = rows[number][cell];
      const std::string blanks(widths[cell] - display_width(word), ' ');
      const bool at_right = std::find(right.begin(), right.end(), cell) != right.end();
      line += (cell > 0 ? "  " : "") + (at_right ? blanks + word : word + blanks);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += (number == 0 ? styled(Stream::kOutput, Style::kBold, line) : line) + "\n";
  }
  return text;
}

}  // namespace espalier
