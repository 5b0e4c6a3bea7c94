#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>

#include "apps/print_json.h"
#include "apps/runs/commands.h"
#include "base/file.h"
#include "base/format.h"
#include "base/options.h"
#include "report/chart.h"
#include "report/metrics_index.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

struct PlotRequest {
  std::vector<std::string> folders, labels;
  std::string metric, title, output;
  enum class Against { kSteps, kTokens, kSeconds } against = Against::kSteps;
  int64_t smooth = 1, width = 900, height = 420;
  bool log_y = false, overwrite = false, json = false;
};

const char* name_of(PlotRequest::Against against) {
  switch (against) {
    case PlotRequest::Against::kSteps: return "step";
    case PlotRequest::Against::kTokens: return "tokens";
    case PlotRequest::Against::kSeconds: return "seconds of training";
  }
  return "";
}

void parse(const std::vector<std::string>& arguments, PlotRequest& request, bool& runs) {
  using Against = PlotRequest::Against;
  OptionTable table("espalier runs plot",
                    "Plots one quantity of several runs over steps, tokens or time, as an SVG file.");
  table.positional("FOLDER", request.folders, "run folders (--save of the runs)", 1, 24);
  table.add("--output", request.output, "the picture").value_name("FILE").required();
  table
      .add("--metric", request.metric,
           "a quantity of metrics.jsonl, or of evaluations as KIND/SET/NAME: grad_norm, valid/wiki/lm_loss")
      .value_name("NAME")
      .default_text("the loss");
  table.add_choice(
      "--against", request.against,
      {{"steps", Against::kSteps}, {"tokens", Against::kTokens}, {"seconds", Against::kSeconds}},
      "the horizontal axis: steps, tokens, or the sum of the steps' seconds, without saves and evaluations");
  table
      .add("--smooth", request.smooth,
           "the line is the mean of that many records; the range from lowest to highest stays visible")
      .minimum(1)
      .maximum(1000000);
  table.add("--log-y", request.log_y, "logarithmic scale");
  table.add("--labels", request.labels, "names of the runs in the legend, in their order").value_name("TEXT");
  table.add("--title", request.title, "title above the picture");
  table.add("--width", request.width, "pixels").minimum(300).maximum(10000);
  table.add("--height", request.height, "pixels, without the legend").minimum(200).maximum(10000);
  table.add("--overwrite", request.overwrite, "replace an existing picture");
  table.add("--json", request.json, "print the points instead of the path of the picture");
  Problems problems;
  runs = table.parse(arguments, problems);
  if (!runs) return;
  if (!request.labels.empty() && request.labels.size() != request.folders.size())
    problems.add("--labels: ", request.labels.size(), " for ", request.folders.size(), " runs; give one for each");
  if (fs::exists(request.output) && !request.overwrite)
    problems.add("'", request.output, "' exists; use another name, or --overwrite");
  problems.raise();
}

// Where each recorded step is. A run that does not record what is asked for has NaN there.
std::vector<double> places(const report::MetricsIndex& metrics, PlotRequest::Against against) {
  if (against == PlotRequest::Against::kSteps) return {metrics.steps().begin(), metrics.steps().end()};
  const bool sums = against == PlotRequest::Against::kSeconds;
  const report::MetricsIndex::Column* const column = metrics.find(sums ? "step_seconds" : "consumed_tokens");
  if (column == nullptr) return std::vector<double>(metrics.steps().size(), std::nan(""));
  std::vector<double> x(column->values.begin(), column->values.end());
  double seconds = 0;
  for (double& value : x)
    if (sums) value = seconds += std::isfinite(value) ? value : 0;
  return x;
}

std::string name_of(const report::Evaluation& evaluation) {
  return concat(evaluation.kind, "/", evaluation.set, "/", evaluation.name);
}

std::string names_in(const report::MetricsIndex& metrics) {
  std::set<std::string> names;
  for (const report::MetricsIndex::Column& column : metrics.columns()) names.insert(column.name);
  for (const report::Evaluation& evaluation : metrics.evaluations()) names.insert(name_of(evaluation));
  return names.empty() ? "it has no records yet" : "it has " + join({names.begin(), names.end()}, ", ");
}

// Of an evaluation: at the place of the last recorded step that is not after it.
report::Curve evaluations_of(const report::MetricsIndex& metrics, const std::vector<double>& x,
                             const std::string& metric) {
  report::Curve curve;
  const std::vector<int64_t>& steps = metrics.steps();
  for (const report::Evaluation& evaluation : metrics.evaluations()) {
    if (name_of(evaluation) != metric) continue;
    const auto after = std::upper_bound(steps.begin(), steps.end(), evaluation.step);
    curve.x.push_back(after == steps.begin() ? 0 : x[static_cast<size_t>(after - steps.begin()) - 1]);
    curve.y.push_back(evaluation.value);
  }
  return curve;
}

report::Curve curve_of(const report::Run& run, const PlotRequest& request, const std::string& metric) {
  report::MetricsIndex metrics(run.folder / "metrics.jsonl");
  metrics.update();
  const std::vector<double> x = places(metrics, request.against);
  const report::MetricsIndex::Column* const column = metrics.find(metric);
  report::Curve curve = column != nullptr ? report::Curve{"", x, {column->values.begin(), column->values.end()}}
                                          : evaluations_of(metrics, x, metric);
  if (curve.x.empty())
    throw UserError(concat("'", run.folder.string(), "' has no '", metric, "'; ", names_in(metrics)),
                    ExitCode::kMissingInput);
  return curve;
}

std::string loss_of(const report::Run& run) {
  const std::string name = report::read_metrics(run.folder / "metrics.jsonl", {}).loss_column();
  if (name.empty())
    throw UserError(concat("'", run.folder.string(), "' has no loss yet; give another --metric"),
                    ExitCode::kMissingInput);
  return name;
}

}  // namespace

int runs_plot_main(const std::vector<std::string>& arguments) {
  PlotRequest request;
  bool runs = false;
  parse(arguments, request, runs);
  if (!runs) return 0;
  for (const char* ending : {".png", ".jpg", ".jpeg", ".gif", ".pdf", ".webp"})
    if (request.output.ends_with(ending))
      throw UserError(concat("--output ", request.output, ": the picture is in SVG; name it ",
                             request.output.substr(0, request.output.rfind('.')), ".svg"),
                      ExitCode::kUsage);
  report::Chart chart{.title = request.title,
                      .x_name = name_of(request.against),
                      .y_name = request.metric,
                      .curves = {},
                      .log_y = request.log_y,
                      .smooth = request.smooth,
                      .width = static_cast<double>(request.width),
                      .height = static_cast<double>(request.height)};
  for (size_t i = 0; i < request.folders.size(); ++i) {
    const report::Run run = report::read_run(request.folders[i]);
    if (chart.y_name.empty()) chart.y_name = loss_of(run);
    chart.curves.push_back(curve_of(run, request, chart.y_name));
    chart.curves.back().label = request.labels.empty() ? run.folder.string() : request.labels[i];
  }
  write_file_atomically(request.output, report::to_svg(chart));
  if (!request.json) {
    std::printf("'%s': %s of %zu %s\n", request.output.c_str(), chart.y_name.c_str(), chart.curves.size(),
                chart.curves.size() == 1 ? "run" : "runs");
    return 0;
  }
  nlohmann::ordered_json object = {
      {"metric", chart.y_name}, {"against", chart.x_name}, {"runs", nlohmann::ordered_json::array()}};
  for (const report::Curve& curve : chart.curves)
    object["runs"].push_back({{"label", curve.label}, {"x", curve.x}, {"y", curve.y}});
  print_json(object);
  return 0;
}

}  // namespace espalier
