#include "plan/faults/fault_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/format.h"

namespace espalier::plan {
namespace {

constexpr double kDaySeconds = 86400;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Time until the next failure. std::exponential_distribution may differ between libraries; this does not.
double until_fault(const FaultModel& model, std::mt19937_64& random) {
  const double uniform = (static_cast<double>(random() >> 11) + 0.5) / 9007199254740992.0;  // 2^53, never 0 or 1
  return -std::log(uniform) * model.mean_time_between();
}

// Waits for detection and restart, which may fail as well; the wait ends at the horizon.
void come_back(const FaultModel& model, double horizon, std::mt19937_64& random, FaultRun& run) {
  const double all = model.detect + model.restart;
  for (;;) {
    const double left = horizon - run.wall, next = until_fault(model, random);
    const double waited = std::min({all, next, left});
    run.wall += waited;
    run.down += waited;
    if (waited == left || next >= all) return;
    ++run.num_faults;
  }
}

// Steps and saves for `time` seconds: what of it is kept where a failure, or else the end of the run, comes then.
void make_steps(const FaultModel& model, int64_t save_steps, double time, bool fails, FaultRun& run) {
  const double work = static_cast<double>(save_steps) * model.step, segment = work + model.save;
  const double segments = std::floor(time / segment), rest = time - segments * segment;
  const double worked = std::min(rest, work);
  run.kept += segments * work;
  run.saving += segments * model.save + (rest - worked);
  run.wall += time;
  if (fails)
    run.redone += worked;
  else
    run.kept += std::floor(worked / model.step) * model.step;
}

}  // namespace

double FaultModel::mean_time_between() const {
  return faults_per_day() > 0 ? kDaySeconds / faults_per_day() : kInfinite;
}

const std::vector<FaultRate>& fault_rates() {
  static const std::vector<FaultRate> rates = {
      {"llama3", 419 / (54.0 * 16384 / 8),
       "Llama Team 2024 (The Llama 3 Herd of Models): 419 unexpected interruptions in 54 days on 16,384 H100"},
      {"rsc-1", 6.50e-3, "Kokolis et al. 2024 (Revisiting Reliability): 6.50 failures in 1,000 node-days, 16,000 A100"},
      {"rsc-2", 2.34e-3, "Kokolis et al. 2024 (Revisiting Reliability): 2.34 failures in 1,000 node-days, 8,000 A100"},
  };
  return rates;
}

FaultRate find_fault_rate(const std::string& name_or_number) {
  std::vector<std::string> names;
  for (const FaultRate& rate : fault_rates()) {
    if (name_or_number == rate.name) return rate;
    names.emplace_back(rate.name);
  }
  char* end = nullptr;
  const double number = std::strtod(name_or_number.c_str(), &end);
  if (name_or_number.empty() || *end != '\0' || !(number >= 0 && number <= 1e6))
    throw UserError(concat("--faults ", name_or_number, " is neither a published rate (", join(names, ", "),
                           ") nor a number of failures per node and day, such as 0.004"),
                    ExitCode::kUsage);
  return {"the given rate", number, "the command line"};
}

double expected_ettr(const FaultModel& model, double interval) {
  const double between = model.mean_time_between();
  if (between == kInfinite) return interval == kInfinite ? 1 : interval / (interval + model.save);
  const double wall =
      between * std::exp((model.detect + model.restart) / between) * std::expm1((interval + model.save) / between);
  return interval / wall;
}

double young_interval(const FaultModel& model) {
  return std::max(model.step, std::sqrt(2 * model.save * model.mean_time_between()));
}

double daly_interval(const FaultModel& model) {
  const double between = model.mean_time_between(), save = model.save;
  if (between == kInfinite) return kInfinite;
  if (save >= 2 * between) return std::max(model.step, between);
  const double ratio = save / (2 * between);
  return std::max(model.step, std::sqrt(2 * save * between) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - save);
}

double best_interval(const FaultModel& model) {
  const double between = model.mean_time_between();
  if (between == kInfinite) return kInfinite;
  // d/dx of x / (exp((x + s) / M) - 1) has the sign of 1 - exp(-(x + s) / M) - x / M, which falls.
  double low = 0, high = between;
  for (int step = 0; step < 200; ++step) {
    const double middle = (low + high) / 2;
    (-std::expm1(-(middle + model.save) / between) > middle / between ? low : high) = middle;
  }
  return std::max(model.step, low);
}

FaultRun simulate_faults(const FaultModel& model, int64_t save_steps, double horizon, uint64_t seed) {
  ESPALIER_CHECK(save_steps >= 1 && model.step > 0 && horizon > 0, save_steps, " steps between saves");
  std::mt19937_64 random(seed);
  FaultRun run;
  while (run.wall < horizon) {
    const double left = horizon - run.wall, next = until_fault(model, random);
    if (next >= left) {
      make_steps(model, save_steps, left, /*fails=*/false, run);
      run.wall = horizon;
      break;
    }
    make_steps(model, save_steps, next, /*fails=*/true, run);
    ++run.num_faults;
    come_back(model, horizon, random, run);
  }
  return run;
}

FaultStudy study_faults(const FaultModel& model, int64_t save_steps, double horizon, int64_t num_runs) {
  FaultStudy study{.num_runs = num_runs};
  std::vector<double> shares;
  double faults = 0, squares = 0;
  const double count = static_cast<double>(num_runs);
  for (int64_t seed = 0; seed < num_runs; ++seed) {
    const FaultRun run = simulate_faults(model, save_steps, horizon, static_cast<uint64_t>(seed));
    shares.push_back(run.ettr());
    study.mean += run.ettr() / count;
    faults += static_cast<double>(run.num_faults) / count;
    study.average.wall += run.wall / count;
    study.average.kept += run.kept / count;
    study.average.redone += run.redone / count;
    study.average.down += run.down / count;
    study.average.saving += run.saving / count;
  }
  study.average.num_faults = static_cast<int64_t>(std::llround(faults));
  for (const double share : shares) squares += (share - study.mean) * (share - study.mean);
  if (num_runs > 1) study.mean_error = std::sqrt(squares / (count - 1) / count);
  std::sort(shares.begin(), shares.end());
  study.low = shares[shares.size() / 20];
  study.high = shares[shares.size() - 1 - shares.size() / 20];
  return study;
}

}  // namespace espalier::plan
