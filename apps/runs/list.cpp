#include <cstdio>

#include "apps/runs/commands.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"

namespace espalier {

int runs_list_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> folders;
  bool json = false;
  OptionTable table("espalier runs list",
                    "Lists runs: their status, steps, last loss, speed and when they last changed something.");
  table.positional("FOLDER", folders, "run folders, or folders of run folders; the current one by default", 0,
                   SIZE_MAX);
  table.add("--json", json, "a JSON array of one object a run");
  if (!table.parse(arguments)) return 0;
  if (folders.empty()) folders.push_back(".");
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  std::vector<std::vector<std::string>> rows = {{"run", "status", "steps", "loss", "tokens/s", "changed"}};
  for (const auto& folder : report::find_runs(folders)) {
    constexpr int64_t kLastSteps = 20;  // the whole file may be large, and a list is to be quick
    const report::Run run = report::read_run(folder);
    const RunFigures figures =
        figures_of(report::read_last_metrics(folder / "metrics.jsonl", figure_columns(), kLastSteps));
    array.push_back(to_json(run, figures));
    rows.push_back({folder.string(), report::to_string(run.status), steps_text(run, figures), loss_text(figures.loss),
                    figures.tokens_per_second ? format_count(static_cast<int64_t>(*figures.tokens_per_second)) : "-",
                    time_ago(run.changed)});
  }
  if (json) {
    std::printf("%s\n", array.dump().c_str());
  } else if (rows.size() == 1) {
    log_info("no runs in ", join(folders, ", "), ": no folder there has config.toml, metrics.jsonl or a checkpoint");
  } else {
    std::fputs(aligned(rows, {2, 3, 4}).c_str(), stdout);
  }
  return 0;
}

}  // namespace espalier
