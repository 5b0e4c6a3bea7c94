#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "apps/print_json.h"
#include "apps/runs/commands.h"
#include "base/format.h"
#include "base/options.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

struct Compared {
  report::Run run;
  report::Metrics metrics;
  RunFigures figures;
};

// Where a run writes and reads differs between any two runs, and says nothing of them.
const std::set<std::string> kPlaces = {"save", "load", "tensorboard_dir"};

// The options that are not the same everywhere: key, then the value of each run; "" where it is not set.
std::vector<Row> different_options(const std::vector<Compared>& runs) {
  std::set<std::string> keys;
  for (const Compared& compared : runs)
    for (const auto& [key, value] : compared.run.options) keys.insert(key);
  std::vector<Row> rows;
  for (const std::string& key : keys) {
    Row row = {key};
    for (const Compared& compared : runs) {
      const auto found = compared.run.options.find(key);
      row.push_back(found == compared.run.options.end() ? "" : found->second);
    }
    const bool differs =
        std::any_of(row.begin() + 2, row.end(), [&](const std::string& word) { return word != row[1]; });
    if (differs && !kPlaces.contains(key)) rows.push_back(row);
  }
  return rows;
}

// The last step that every run has recorded.
std::optional<int64_t> common_step(const std::vector<Compared>& runs) {
  const std::vector<int64_t>& first = runs[0].metrics.steps;
  for (auto step = first.rbegin(); step != first.rend(); ++step) {
    const bool everywhere = std::all_of(runs.begin() + 1, runs.end(), [&](const Compared& compared) {
      return std::binary_search(compared.metrics.steps.begin(), compared.metrics.steps.end(), *step);
    });
    if (everywhere) return *step;
  }
  return std::nullopt;
}

std::optional<double> loss_at(const report::Metrics& metrics, int64_t step) {
  const std::string name = metrics.loss_column();
  const auto found = std::lower_bound(metrics.steps.begin(), metrics.steps.end(), step);
  if (name.empty() || found == metrics.steps.end() || *found != step) return std::nullopt;
  return metrics.columns.at(name)[static_cast<size_t>(found - metrics.steps.begin())];
}

std::string speed(std::optional<double> tokens) { return tokens ? format_count(static_cast<int64_t>(*tokens)) : "-"; }

std::vector<Row> metric_rows(const std::vector<Compared>& runs, std::optional<int64_t> common) {
  std::vector<Row> rows = {{"status"}, {"steps"}, {"loss"}, {"lowest loss"}, {"tokens/s"}, {"tokens"}};
  if (common) rows.push_back({"loss at step " + format_count(*common)});
  std::set<std::string> sets;
  for (const Compared& compared : runs) {
    size_t at = 0;
    for (const std::string& word :
         {std::string(report::to_string(compared.run.status)), steps_text(compared.run, compared.figures),
          loss_text(compared.figures.loss), loss_text(compared.figures.lowest_loss),
          speed(compared.figures.tokens_per_second), speed(compared.figures.consumed_tokens)})
      rows[at++].push_back(word);
    if (common) rows[at].push_back(loss_text(loss_at(compared.metrics, *common)));
    for (const report::Evaluation& evaluation : compared.metrics.evaluations)
      if (evaluation.name != "ppl") sets.insert(concat(evaluation.kind, "\n", evaluation.set, "\n", evaluation.name));
  }
  for (const std::string& words : sets) {
    const Row names = split(words, '\n');
    Row row = {join(names, " ")};
    for (const Compared& compared : runs) {
      std::optional<double> last;
      for (const report::Evaluation& evaluation : compared.metrics.evaluations)
        if (evaluation.kind == names[0] && evaluation.set == names[1] && evaluation.name == names[2])
          last = evaluation.value;
      row.push_back(loss_text(last));
    }
    rows.push_back(row);
  }
  return rows;
}

Json to_json(const std::vector<Compared>& runs, std::optional<int64_t> common) {
  Json options = Json::object(), list = Json::array();
  for (const Row& row : different_options(runs)) options[row[0]] = Row(row.begin() + 1, row.end());
  for (const Compared& compared : runs) {
    Json object = to_json(compared.run, compared.figures);
    const auto loss = common ? loss_at(compared.metrics, *common) : std::nullopt;
    object["loss_at_common_step"] = loss ? Json(*loss) : Json(nullptr);
    object["evaluations"] = last_evaluations(compared.metrics);
    list.push_back(object);
  }
  return {{"runs", list}, {"different_options", options}, {"common_step", common ? Json(*common) : Json(nullptr)}};
}

void shorten(std::vector<Row>& rows) {
  constexpr size_t kMost = 40;
  for (Row& row : rows)
    for (std::string& word : row)
      if (word.size() > kMost) word = word.substr(0, kMost - 3) + "...";
}

}  // namespace

int runs_compare_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> folders;
  bool json = false;
  OptionTable table("espalier runs compare",
                    "Compares runs side by side: the options that differ between them, and their figures.");
  table.positional("FOLDER", folders, "run folders", 2, SIZE_MAX);
  table.add("--json", json, "one JSON object: runs, different_options, common_step");
  if (!table.parse(arguments)) return 0;
  std::vector<Compared> runs;
  for (const std::string& folder : folders) {
    Compared compared{report::read_run(folder), report::read_metrics(folder + "/metrics.jsonl", figure_columns()), {}};
    compared.figures = figures_of(compared.metrics);
    runs.push_back(std::move(compared));
  }
  const std::optional<int64_t> common = common_step(runs);
  if (json) {
    print_json(to_json(runs, common));
    return 0;
  }
  Row heading = {""};
  heading.insert(heading.end(), folders.begin(), folders.end());
  std::vector<Row> rows = {heading};
  for (const Row& row : metric_rows(runs, common)) rows.push_back(row);
  const std::vector<Row> options = different_options(runs);
  rows.push_back({""});
  rows.push_back({options.empty() ? "no option differs" : "options that differ"});
  for (const Row& row : options) rows.push_back(row);
  shorten(rows);
  std::fputs(aligned(rows, {}).c_str(), stdout);
  return 0;
}

}  // namespace espalier
