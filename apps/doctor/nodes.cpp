#include "apps/doctor/nodes.h"

#include <algorithm>
#include <cstdio>

#include "apps/doctor/machine_checks.h"
#include "apps/print_json.h"
#include "apps/runs/commands.h"
#include "base/format.h"
#include "base/log.h"
#include "launch/environment.h"
#include "launch/node_probe.h"
#include "watch/room.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr double kGiga = 1e9;

launch::NodeFolder look_at(const std::string& folder) {
  launch::NodeFolder found{folder, "", 0};
  for (const Finding& finding : check_folder(folder))
    if (finding.verdict == Finding::Verdict::kProblem) found.trouble = finding.text;
  if (const auto room = watch::room_of(folder)) found.free_bytes = room->free_bytes;
  return found;
}

std::string row_text(const std::vector<launch::NodeReport>& reports, const std::vector<launch::NodeVerdict>& verdicts) {
  // Where no machine has a GPU there is no column for them.
  const bool has_gpus =
      std::any_of(reports.begin(), reports.end(), [](const auto& report) { return !report.gpus.is_empty(); });
  std::vector<Words> rows = {
      {"host", "cores", "G mul-adds/s", "memory/s", "free memory", "free disk", "clock", "latency", "to the next/s"}};
  if (has_gpus) rows[0].push_back("GPUs");
  rows[0].push_back("verdict");
  for (size_t at = 0; at < reports.size(); ++at) {
    const launch::NodeReport& report = reports[at];
    rows.push_back({report.host, std::to_string(report.num_cores), format_fixed(report.compute_per_second / kGiga, 1),
                    format_bytes(report.memory_bytes_per_second), format_bytes(report.free_memory_bytes),
                    format_bytes(report.free_disk_bytes), format_printf("%+.4f s", report.seconds_ahead),
                    format_printf("%.3f ms", 1e3 * report.latency_seconds),
                    format_bytes(report.send_bytes_per_second)});
    if (has_gpus) rows.back().push_back(report.gpus.is_empty() ? "none" : launch::to_text(report.gpus));
    rows.back().push_back(verdicts[at].faults.empty() ? "ok" : join(verdicts[at].faults, "; "));
  }
  return aligned(rows, {1, 2, 3, 4, 5, 6, 7, 8});
}

Json to_json(const launch::NodeReport& report, const launch::NodeVerdict& verdict) {
  Json gpus = Json::array();
  for (const launch::GpuInfo& gpu : report.gpus.gpus)
    gpus.push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}, {"used_bytes", gpu.used_bytes}});
  return {{"host", report.host},
          {"rank", report.rank},
          {"cores", report.num_cores},
          {"multiply_adds_per_second", report.compute_per_second},
          {"memory_bytes_per_second", report.memory_bytes_per_second},
          {"free_memory_bytes", report.free_memory_bytes},
          {"free_disk_bytes", report.free_disk_bytes},
          {"seconds_ahead", report.seconds_ahead},
          {"latency_seconds", report.latency_seconds},
          {"send_bytes_per_second", report.send_bytes_per_second},
          {"gpu_driver", report.gpus.driver},
          {"gpus", gpus},
          {"faults", verdict.faults}};
}

}  // namespace

int doctor_nodes(const Words& folders, const NodesOptions& options, bool json) {
  launch::NodeRule rule;
  if (!options.min_free.empty()) {
    const auto bytes = parse_bytes(options.min_free);
    if (!bytes)
      throw UserError(concat("--min-free: expected an amount such as 500GiB, found '", options.min_free, "'"),
                      ExitCode::kUsage);
    rule.least_free_disk = static_cast<double>(*bytes);
  }
  const launch::RankEnvironment place = launch::detect_environment();
  if (place.rank == 0)
    log_info("comparing ", format_counted(place.world_size, "machine"), ", about ",
             format_duration(2 * options.seconds_each + 2));
  std::vector<launch::NodeFolder> found;
  for (const std::string& folder : folders) found.push_back(look_at(folder));
  const std::vector<launch::NodeReport> reports = launch::probe_nodes(place, found, options.seconds_each);
  if (place.rank != 0) return 0;
  const std::vector<launch::NodeVerdict> verdicts = launch::judge_nodes(reports, rule);
  Words excluded;
  Json nodes = Json::array();
  for (size_t at = 0; at < reports.size(); ++at) {
    nodes.push_back(to_json(reports[at], verdicts[at]));
    if (!verdicts[at].faults.empty()) excluded.push_back(verdicts[at].host);
  }
  if (json) {
    print_json(Json{{"nodes", nodes}, {"exclude", excluded}});
    return 0;
  }
  std::fputs(row_text(reports, verdicts).c_str(), stdout);
  std::printf("\n%s\n", excluded.empty() ? "All machines are alike." : ("--exclude " + join(excluded, ",")).c_str());
  return 0;
}

}  // namespace espalier
