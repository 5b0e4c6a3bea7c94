// espalier runs: list, show, compare, report and serve runs by what they recorded.
#include "apps/commands.h"
#include "apps/runs/commands.h"

namespace espalier {

const std::vector<Command>& runs_commands() {
  static const std::vector<Command> list = {
      {"list", "one line a run: status, steps, loss, speed", runs_list_main},
      {"show", "one run: its state, its figures, and its loss as a curve", runs_show_main},
      {"compare", "several runs: which options differ, and with what results", runs_compare_main},
      {"plot", "a plot of one quantity of several runs, such as their losses", runs_plot_main},
      {"journal", "what happened to one run, attempt by attempt, and what it cost", runs_journal_main},
      {"mirror", "copy the records of a run to another folder, or commit and push them by git", runs_mirror_main},
      {"report", "the page of some runs as one HTML file, to send or to keep", runs_report_main},
      {"serve", "a page that shows runs in a browser, also while they train", runs_serve_main},
  };
  return list;
}

int runs_main(const std::vector<std::string>& arguments) {
  return run_subcommand("espalier runs", runs_commands(), arguments);
}

}  // namespace espalier
