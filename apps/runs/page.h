// What the page of `espalier runs serve` asks for: its files, and runs as JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "report/metrics_index.h"
#include "report/run_reader.h"
#include "web/server.h"

namespace espalier {

// A run is asked for by an id that the list of runs gave, never by a path.
class RunsPage {
 public:
  explicit RunsPage(std::vector<std::string> folders) : folders_(std::move(folders)) {}
  RunsPage(const RunsPage&) = delete;
  RunsPage& operator=(const RunsPage&) = delete;

  // "" and the names of the page's files, and:
  //   api/runs                                    the list
  //   api/run?id=I                                options, events, evaluations, columns, number of records
  //   api/bins?id=I&from=A&to=B&bins=N[&column=C] extremes of the columns over ranges of steps
  //   api/new?id=I&since=N&generation=G           the records after the first N
  //   api/ranks?id=I                              where its ranks are (runs_page_details.h)
  //   api/plan?id=I                               its schedule and memory as planned, as SVG
  //   api/log?id=I&file=F&bytes=N                 its log after the first N bytes of file F (both 0: its end)
  //   api/texts?id=I&step=N                       what the step read, as text
  // Any thread.
  web::Reply reply(const web::Request& request);
  // Reads the records of the runs, one run after another, so that whoever opens one later does not wait for it; ends
  // early where `stops` says so. Requests are answered between two runs.
  void read_ahead(const std::function<bool()>& stops);

  // What a report of all its runs holds in place of the server, as JSON: {"runs": [...], "details": {I: {"run", "bins",
  // "plan"}}}, with at most `most_bins` bins for each column of a run.
  std::string report(int64_t most_bins);
  size_t num_columns();  // of all runs

 private:
  std::string list();
  std::string run(const std::string& id);
  std::string bins(const web::Request& request);
  static std::string bins(const report::MetricsIndex& index, const std::string& only, int64_t from, int64_t to,
                          int64_t most_bins);
  web::Reply plan(const std::string& id);
  web::Reply texts(const web::Request& request);
  std::string new_records(const web::Request& request);
  const std::filesystem::path& folder_of(const std::string& id) const;
  report::MetricsIndex& index_of(const std::string& id);  // brought up to date

  std::mutex mutex_;  // of all below
  std::vector<std::string> folders_;
  std::map<std::string, std::filesystem::path> runs_;  // by id
  std::map<std::string, report::MetricsIndex> indexes_;
};

}  // namespace espalier
