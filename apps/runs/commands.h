// The subcommands of `espalier runs`, and what they have in common.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/metrics_reader.h"
#include "report/run_reader.h"

namespace espalier {

int runs_list_main(const std::vector<std::string>& arguments);
int runs_show_main(const std::vector<std::string>& arguments);
int runs_compare_main(const std::vector<std::string>& arguments);
int runs_journal_main(const std::vector<std::string>& arguments);
int runs_mirror_main(const std::vector<std::string>& arguments);
int runs_plot_main(const std::vector<std::string>& arguments);
int runs_report_main(const std::vector<std::string>& arguments);
int runs_serve_main(const std::vector<std::string>& arguments);

// The figures of a run that lists and comparisons show.
struct RunFigures {
  std::optional<int64_t> step;  // the last one recorded
  std::optional<double> first_loss, loss, lowest_loss;
  std::optional<int64_t> lowest_loss_step;
  std::optional<double> tokens_per_second, step_seconds;  // medians of the last steps
  std::optional<double> consumed_tokens;
};

// The columns that RunFigures needs besides the losses.
std::vector<std::string> figure_columns();
RunFigures figures_of(const report::Metrics& metrics);

nlohmann::ordered_json to_json(const report::Run& run, const RunFigures& figures);
// {"validation": {"wiki": {"step": 100, "lm_loss": 3.2}}}: the last of each set.
nlohmann::ordered_json last_evaluations(const report::Metrics& metrics);

std::string loss_text(std::optional<double> loss);                          // "3.2145", "-"
std::string steps_text(const report::Run& run, const RunFigures& figures);  // "1,000 of 2,000"
std::string time_ago(std::optional<double> time);                           // "3 min ago"

// Rows of cells as aligned columns, those of `right` at the right; the first row is the heading.
std::string aligned(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& right);

}  // namespace espalier
