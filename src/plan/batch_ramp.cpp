#include "plan/batch_ramp.h"

#include <algorithm>

#include "base/error.h"

namespace espalier::plan {

BatchRamp::BatchRamp(int64_t global_batch_size) : final_(global_batch_size), start_(global_batch_size) {
  ESPALIER_CHECK(global_batch_size > 0, global_batch_size);
}

BatchRamp::BatchRamp(int64_t start, int64_t increment, int64_t ramp_samples, int64_t global_batch_size)
    : final_(global_batch_size), start_(start), increment_(increment), ramp_samples_(ramp_samples) {
  ESPALIER_CHECK(start > 0 && start < global_batch_size && increment > 0 && ramp_samples >= 0, start, " ", increment,
                 " ", ramp_samples, " ", global_batch_size);
  ESPALIER_CHECK((global_batch_size - start) % increment == 0, start, " ", increment, " ", global_batch_size);
  num_increments_ = (global_batch_size - start) / increment;
}

int64_t BatchRamp::global_batch_size(int64_t consumed_samples) const {
  if (num_increments_ == 0 || consumed_samples > ramp_samples_) return final_;
  if (ramp_samples_ == 0) return start_;
  const double samples_per_increment = static_cast<double>(ramp_samples_) / static_cast<double>(num_increments_);
  const int64_t increments = static_cast<int64_t>(static_cast<double>(consumed_samples) / samples_per_increment);
  return std::min(start_ + increments * increment_, final_);
}

int64_t BatchRamp::num_steps(int64_t train_samples) const {
  int64_t consumed = 0, steps = 0;
  while (num_increments_ > 0 && consumed <= ramp_samples_) {
    // The largest number of steps of this size: sizes never shrink, so bisect.
    const int64_t batch = global_batch_size(consumed);
    int64_t good = 0, bad = (train_samples - consumed) / batch + 1;
    while (bad - good > 1) {
      const int64_t middle = good + (bad - good) / 2, before_last = consumed + (middle - 1) * batch;
      (before_last <= ramp_samples_ && global_batch_size(before_last) == batch ? good : bad) = middle;
    }
    if (good == 0) return steps;
    steps += good;
    consumed += good * batch;
  }
  return steps + (train_samples - consumed) / final_;
}

bool BatchRamp::all_sizes_divide_by(int64_t divisor) const {
  return final_ % divisor == 0 && start_ % divisor == 0 && increment_ % divisor == 0;
}

}  // namespace espalier::plan
