#include "plan/time/run_time.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "plan/batch_ramp.h"

namespace espalier::plan {
namespace {

constexpr double kSecondsPerHour = 3600;
constexpr size_t kMostTimed = 33;

std::vector<BatchPeriod> periods_of(const RunShape& run, int64_t num_samples) {
  const BatchRamp ramp = run.rampup_batch_size.empty() ? BatchRamp(run.global_batch_size)
                                                       : BatchRamp(run.rampup_batch_size[0], run.rampup_batch_size[1],
                                                                   run.rampup_batch_size[2], run.global_batch_size);
  const int64_t all_steps = ramp.num_steps(num_samples);
  std::vector<BatchPeriod> periods;
  int64_t consumed = 0, steps = 0;
  for (int64_t size = 0; steps < all_steps && size < run.global_batch_size; ++steps, consumed += size) {
    size = ramp.global_batch_size(consumed);
    if (size == run.global_batch_size) break;
    if (periods.empty() || periods.back().global_batch_size != size) periods.push_back({.global_batch_size = size});
    ++periods.back().num_steps;
    periods.back().end_samples = consumed + size;
  }
  if (steps < all_steps)
    periods.push_back({.global_batch_size = run.global_batch_size,
                       .num_steps = all_steps - steps,
                       .end_samples = consumed + (all_steps - steps) * run.global_batch_size});
  return periods;
}

// Of some of the sizes; a step's time is linear between them but where the pipeline begins to fill.
std::map<int64_t, double> timed_sizes(const std::vector<BatchPeriod>& periods, const StepClock& clock) {
  std::map<int64_t, double> seconds;
  const size_t stride = periods.size() / kMostTimed + 1;
  for (size_t at = 0; at < periods.size(); ++at)
    if (at % stride == 0 || at + 1 == periods.size() || at + 2 == periods.size())
      seconds.emplace(periods[at].global_batch_size, clock.at(periods[at].global_batch_size).seconds);
  return seconds;
}

double between(const std::map<int64_t, double>& seconds, int64_t size) {
  const auto above = seconds.lower_bound(size);
  if (above == seconds.end()) return seconds.rbegin()->second;
  if (above->first == size || above == seconds.begin()) return above->second;
  const auto below = std::prev(above);
  const double share = static_cast<double>(size - below->first) / static_cast<double>(above->first - below->first);
  return below->second + share * (above->second - below->second);
}

}  // namespace

RunTime run_time(const RunShape& run, const Machine& machine, const StepClock& clock, int64_t num_samples) {
  RunTime time{.periods = periods_of(run, num_samples), .num_samples = num_samples};
  const std::map<int64_t, double> seconds = timed_sizes(time.periods, clock);
  for (BatchPeriod& period : time.periods) {
    period.step_seconds = between(seconds, period.global_batch_size);
    time.seconds += period.step_seconds * static_cast<double>(period.num_steps);
    time.num_steps += period.num_steps;
    period.end_seconds = time.seconds;
    if (period.global_batch_size == run.global_batch_size) continue;
    time.ramp_steps = time.num_steps;
    time.ramp_seconds = time.seconds;
  }
  const double devices = static_cast<double>(run.grid.num_ranks()),
               nodes = std::ceil(devices / machine.devices_per_node);
  time.tokens = static_cast<double>(num_samples) * static_cast<double>(run.sequence_length);
  time.device_hours = devices * time.seconds / kSecondsPerHour;
  time.device_kwh = time.device_hours * machine.device_watts / 1000;
  time.site_kwh =
      (time.device_kwh + nodes * machine.node_watts / 1000 * time.seconds / kSecondsPerHour) * machine.power_overhead;
  time.price = time.device_hours * machine.device_hour_price;
  return time;
}

double days_by_formula(double tokens, double parameters, double devices, double flops) {
  return 8 * tokens * parameters / (devices * flops) / kSecondsPerDay;
}

}  // namespace espalier::plan
