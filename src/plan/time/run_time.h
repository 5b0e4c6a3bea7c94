// A whole run in days, kilowatt-hours and money, over the growth of its batch.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/time/step_time.h"

namespace espalier::plan {

inline constexpr double kSecondsPerDay = 86400;

// Consecutive steps of one size.
struct BatchPeriod {
  int64_t global_batch_size = 0, num_steps = 0;
  double step_seconds = 0;
  double end_seconds = 0;  // since the run began
  int64_t end_samples = 0;
};

struct RunTime {
  std::vector<BatchPeriod> periods;  // in order; one where the batch is constant
  int64_t num_steps = 0, num_samples = 0;
  double seconds = 0, tokens = 0;
  double device_hours = 0;
  double device_kwh = 0;  // of devices alone
  double site_kwh = 0;    // with the rest of their nodes and what the site needs for them
  double price = 0;       // 0 where the machine has none
  // Until the batch has its full size; 0 where it is constant.
  int64_t ramp_steps = 0;
  double ramp_seconds = 0;
};

// Without stops, evaluation and saves. Of steps of many sizes some are timed and the others are between them.
RunTime run_time(const RunShape& run, const Machine& machine, const StepClock& clock, int64_t num_samples);

// Narayanan et al. 2021, section 5.1: 8 T P / (n X) seconds, as days; X in FLOP/s of a device.
double days_by_formula(double tokens, double parameters, double devices, double flops);

}  // namespace espalier::plan
