// espalier runs report: the page of runs as one HTML file that needs no server and asks no host for anything.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/runs/commands.h"
#include "apps/runs/page.h"
#include "base/file.h"
#include "base/format.h"
#include "base/options.h"
#include "web/page_files.h"

namespace espalier {
namespace {

constexpr int64_t kMostBins = 1000;
// About what a bin of one column takes: two numbers of six to twelve characters.
constexpr double kBinBytes = 20, kMostCurveBytes = 1.4e6;
constexpr int64_t kFewestBins = 50;

void replace(std::string& text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  ESPALIER_CHECK(at != std::string::npos, "the page has no '", what, "'");
  text.replace(at, what.size(), by);
}

// In a script element only "</" could end it early, and "<!--" open a comment.
std::string in_script(std::string json) {
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos;) json.replace(at, 1, "\\u003c");
  return json;
}

std::string report_page(const std::string& snapshot) {
  const auto& files = web::page_files();
  std::string page = files.at("index.html");
  replace(page, R"(<link rel="stylesheet" href="page.css">)", concat("<style>\n", files.at("page.css"), "</style>"));
  replace(page, R"(<script src="data.js"></script>)",
          concat("<script>window.snapshot = ", in_script(snapshot), ";</script>\n<script src=\"data.js\"></script>"));
  for (const char* name : {"data.js", "chart.js", "page.js", "details.js"})
    replace(page, concat("<script src=\"", name, "\"></script>"), concat("<script>\n", files.at(name), "</script>"));
  return page;
}

}  // namespace

int runs_report_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> folders;
  std::string output;
  bool overwrite = false;
  OptionTable table(
      "espalier runs report",
      "Writes the page of 'runs serve' as one HTML file, with the curves, evaluations, events, options and "
      "plans of the runs as they are now. It opens in any browser, without a network.");
  table.positional("FOLDER", folders, "run folders, or folders of run folders; the current one by default", 0,
                   SIZE_MAX);
  table.add("--output", output, "the file").value_name("FILE").required();
  table.add("--overwrite", overwrite, "replace an existing file");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  if (std::filesystem::exists(output) && !overwrite)
    problems.add("'", output, "' exists; use another name, or --overwrite");
  problems.raise();
  if (folders.empty()) folders.push_back(".");
  if (report::find_runs(folders).empty())
    throw UserError(concat("there is no run in ", join(folders, ", ")), ExitCode::kMissingInput);
  RunsPage page(folders);
  const double columns = std::max<double>(1, static_cast<double>(page.num_columns()));
  const int64_t bins = std::clamp(static_cast<int64_t>(kMostCurveBytes / kBinBytes / columns), kFewestBins, kMostBins);
  const std::string text = report_page(page.report(bins));
  write_file_atomically(output, text);
  std::printf("'%s': %s\n", output.c_str(), format_bytes(static_cast<double>(text.size())).c_str());
  return 0;
}

}  // namespace espalier
