#include "train/step_profile.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"

namespace espalier::train {
namespace {

constexpr double kLeastShare = 0.001;

using Row = WorkProfile::Row;

double flops_of(const Row& row) {
  return 2.0 * static_cast<double>(row.shape.m) * static_cast<double>(row.shape.n) * static_cast<double>(row.shape.k) *
         static_cast<double>(row.calls);
}

bool is_product(const Row& row) { return row.shape != ProductShape{}; }

std::string name_of(const Row& row) {
  const ProductShape& shape = row.shape;
  return concat(to_string(row.work), ", ", row.what,
                is_product(row) ? concat(" ", shape.m, " x ", shape.n, " x ", shape.k) : "");
}

// By kind, the longest first, "other" last.
std::vector<std::pair<std::string, double>> kinds_of(const WorkProfile& profile) {
  std::map<std::string, double> seconds;
  double other = profile.seconds();
  for (const Row& row : profile.rows()) {
    seconds[to_string(row.work)] += row.seconds;
    other -= row.seconds;
  }
  std::vector<std::pair<std::string, double>> kinds(seconds.begin(), seconds.end());
  std::sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  kinds.emplace_back("other", other);
  return kinds;
}

std::string line(const std::string& name, const std::string& calls, double seconds, double share,
                 const std::string& rate) {
  char text[160];
  std::snprintf(text, sizeof text, "\n  %-54s %7s %10.2f %6.1f %% %9s", name.c_str(), calls.c_str(), 1e3 * seconds,
                100 * share, rate.c_str());
  return text;
}

}  // namespace

std::string profile_table(const ProfiledSteps& steps) {
  const WorkProfile& profile = steps.profile;
  const auto count = static_cast<double>(steps.last - steps.first + 1);
  char heading[160];
  std::snprintf(heading, sizeof heading, "\n  %-54s %7s %10s %8s %9s", "work", "calls", "ms", "share", "GFLOP/s");
  std::string table = concat("where a step's time goes: ", format_duration(profile.seconds() / count),
                             " a step, mean of steps ", steps.first, " to ", steps.last, heading);
  const auto rows = profile.rows();
  double rest = profile.seconds();
  for (const Row& row : rows) {
    const double share = row.seconds / profile.seconds();
    if (share < kLeastShare) continue;
    rest -= row.seconds;
    char calls[32], rate[32] = "";
    std::snprintf(calls, sizeof calls, "%.4g", static_cast<double>(row.calls) / count);
    if (is_product(row)) std::snprintf(rate, sizeof rate, "%.0f", flops_of(row) / row.seconds / 1e9);
    table += line(name_of(row), calls, row.seconds / count, share, rate);
  }
  table += line("other", "", rest / count, rest / profile.seconds(), "");
  table += "\n ";
  for (const auto& [kind, seconds] : kinds_of(profile)) {
    char share[64];
    std::snprintf(share, sizeof share, " %.1f %%", 100 * seconds / profile.seconds());
    table += concat(" ", kind, share, kind == "other" ? "" : ",");
  }
  return table;
}

nlohmann::json profile_json(const ProfiledSteps& steps) {
  const auto count = static_cast<double>(steps.last - steps.first + 1);
  nlohmann::json work = nlohmann::json::array();
  for (const Row& row : steps.profile.rows()) {
    nlohmann::json entry = {{"kind", to_string(row.work)},
                            {"what", row.what},
                            {"calls_per_step", static_cast<double>(row.calls) / count},
                            {"seconds_per_step", row.seconds / count}};
    if (is_product(row)) {
      entry["m"] = row.shape.m, entry["n"] = row.shape.n, entry["k"] = row.shape.k;
      entry["flops_per_second"] = flops_of(row) / row.seconds;
    }
    work.push_back(std::move(entry));
  }
  nlohmann::json kinds = nlohmann::json::object();
  for (const auto& [kind, seconds] : kinds_of(steps.profile)) kinds[kind] = seconds / count;
  return {{"steps", {steps.first, steps.last}},
          {"seconds_per_step", steps.profile.seconds() / count},
          {"work", std::move(work)},
          {"kinds", std::move(kinds)}};
}

}  // namespace espalier::train
