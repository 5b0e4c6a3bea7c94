// Which of a job's machines stands out, from what each reported.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/format.h"
#include "launch/node_probe.h"

namespace espalier::launch {
namespace {

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <class Of>
double median_of(const std::vector<NodeReport>& reports, const Of& of) {
  std::vector<double> values;
  for (const NodeReport& report : reports) values.push_back(of(report));
  return median_of(values);
}

// What most have; of values that equally many have, the largest.
template <class Value>
Value usual_of(const std::vector<Value>& values) {
  std::map<Value, int64_t> counts;
  for (const Value& value : values) ++counts[value];
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second || a.second == b.second; })
      ->first;
}

// "550.54.15" as numbers, so that 550.90 comes before 550.127.
std::vector<int64_t> version_numbers(const std::string& version) {
  std::vector<int64_t> numbers;
  std::istringstream words(version);
  for (std::string word; std::getline(words, word, '.');) numbers.push_back(std::strtoll(word.c_str(), nullptr, 10));
  return numbers;
}

// The smallest and the name of the first: a machine is held to both.
double least_memory_of(const GpuInventory& gpus) {
  double least = gpus.gpus.empty() ? 0 : gpus.gpus[0].memory_bytes;
  for (const GpuInfo& gpu : gpus.gpus) least = std::min(least, gpu.memory_bytes);
  return least;
}

std::string names_of(const GpuInventory& gpus) {
  std::set<std::string> names;
  for (const GpuInfo& gpu : gpus.gpus) names.insert(gpu.name);
  return join({names.begin(), names.end()}, " and ");
}

// Where any machine has a GPU or a driver: how each differs from most, added to its verdict.
void judge_gpus(const std::vector<NodeReport>& reports, std::vector<NodeVerdict>& verdicts) {
  if (std::all_of(reports.begin(), reports.end(), [](const NodeReport& report) { return report.gpus.is_empty(); }))
    return;
  // What does not describe a GPU where there is none is not compared there: the count says it.
  std::vector<int64_t> counts;
  std::vector<std::pair<std::vector<int64_t>, std::string>> drivers;
  std::vector<std::string> names;
  std::vector<double> memories;
  for (const NodeReport& report : reports) {
    const GpuInventory& gpus = report.gpus;
    counts.push_back(static_cast<int64_t>(gpus.gpus.size()));
    if (!gpus.driver.empty()) drivers.emplace_back(version_numbers(gpus.driver), gpus.driver);
    if (gpus.gpus.empty()) continue;
    names.push_back(names_of(gpus));
    memories.push_back(least_memory_of(gpus));
  }
  const int64_t usual_count = usual_of(counts);
  for (size_t at = 0; at < reports.size(); ++at) {
    const GpuInventory& gpus = reports[at].gpus;
    const auto fault = [&](const auto&... parts) { verdicts[at].faults.push_back(concat(parts...)); };
    if (!gpus.trouble.empty()) fault("GPU: ", gpus.trouble);
    if (counts[at] != usual_count) fault(format_counted(counts[at], "GPU"), ", others have ", usual_count);
    if (!drivers.empty() && !gpus.driver.empty() && usual_of(drivers).second != gpus.driver)
      fault("GPU driver ", gpus.driver, ", others have ", usual_of(drivers).second);
    if (gpus.gpus.empty()) continue;
    if (names_of(gpus) != usual_of(names)) fault(names_of(gpus), ", others have ", usual_of(names));
    if (const double usual = usual_of(memories); least_memory_of(gpus) != usual)
      fault("GPU memory ", format_bytes(least_memory_of(gpus)), ", others have ", format_bytes(usual));
  }
}

}  // namespace

std::vector<NodeVerdict> judge_nodes(const std::vector<NodeReport>& reports, const NodeRule& rule) {
  std::vector<NodeVerdict> verdicts;
  if (reports.empty()) return verdicts;
  // A link is slow by either of its ends: what a machine is held to is the better one of its two.
  const auto network = [&](const NodeReport& report) {
    const size_t at = static_cast<size_t>(report.rank), before = (at + reports.size() - 1) % reports.size();
    return std::max(report.send_bytes_per_second, reports[before].send_bytes_per_second);
  };
  const auto compute = [](const NodeReport& report) { return report.compute_per_second; };
  const auto memory = [](const NodeReport& report) { return report.memory_bytes_per_second; };
  const double usual_compute = median_of(reports, compute), usual_memory = median_of(reports, memory),
               usual_network = median_of(reports, network),
               usual_clock = median_of(reports, [](const NodeReport&report) { return report.seconds_ahead; });
  for (const NodeReport& report : reports) {
    NodeVerdict verdict{report.host, {}};
    const auto slower = [&](const char* what, double value, double usual, double least) {
      if (value < least * usual)
        verdict.faults.push_back(concat(what, " at ", format_fixed(100 * value / usual, 0), " % of the median"));
    };
    slower("processor", compute(report), usual_compute, rule.least_compute);
    slower("memory", memory(report), usual_memory, rule.least_memory);
    if (reports.size() > 1) slower("network", network(report), usual_network, rule.least_network);
    const double ahead = report.seconds_ahead - usual_clock;
    if (std::abs(ahead) > rule.most_seconds_ahead)
      verdict.faults.push_back(
          concat("clock ", format_fixed(std::abs(ahead), 1), " s ", ahead > 0 ? "ahead" : "behind"));
    if (!report.trouble.empty())
      verdict.faults.push_back(concat("'", report.disk, "': ", report.trouble));
    else if (report.free_disk_bytes < rule.least_free_disk)
      verdict.faults.push_back(concat("'", report.disk, "' has ", format_bytes(report.free_disk_bytes), " left"));
    verdicts.push_back(std::move(verdict));
  }
  judge_gpus(reports, verdicts);
  return verdicts;
}

}  // namespace espalier::launch
