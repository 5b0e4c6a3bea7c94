#include "train/step_statistics.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/format.h"

namespace espalier::train {
namespace {

// "lm loss 9.1 is 12.3 standard deviations above ...", or empty.
std::string outlier(const char* name, double value, const std::vector<StepStatistics::Step>& steps,
                    double StepStatistics::Step::*number, double sigma) {
  double sum = 0, squares = 0;
  for (const StepStatistics::Step& step : steps) sum += step.*number;
  const double count = static_cast<double>(steps.size()), mean = sum / count;
  for (const StepStatistics::Step& step : steps) squares += (step.*number - mean) * (step.*number - mean);
  const double deviation = std::sqrt(squares / count);
  if (value <= mean + sigma * deviation) return "";
  return format_printf("%s %.6g is above %.6g + %g * %.3g, the mean and deviation of the last %zu updates", name, value,
                       mean, sigma, deviation, steps.size());
}

}  // namespace

std::string StepStatistics::judge(const Step& step) {
  if (!is_on()) return "";
  std::string reason;
  if (steps_.size() == window_) {
    reason = outlier("loss", step.loss, steps_, &Step::loss, sigma_);
    if (reason.empty()) reason = outlier("grad norm", step.grad_norm, steps_, &Step::grad_norm, sigma_);
  }
  if (!reason.empty()) {
    if (++num_skipped_ < static_cast<int64_t>(window_)) return reason;
    steps_.clear();
    num_skipped_ = 0;
    return concat(reason, "; as it was in that many steps in a row, the statistics start afresh");
  }
  num_skipped_ = 0;
  if (steps_.size() == window_) steps_.erase(steps_.begin());
  steps_.push_back(step);
  return "";
}

std::string StepStatistics::state() const {
  if (steps_.empty() && num_skipped_ == 0) return "";
  std::string text = std::to_string(num_skipped_);
  for (const Step& step : steps_) text += format_printf(" %a %a", step.loss, step.grad_norm);
  return text;
}

void StepStatistics::restore(const std::string& state) {
  steps_.clear();
  num_skipped_ = 0;
  if (!is_on() || state.empty()) return;
  char* at = nullptr;
  num_skipped_ = std::strtoll(state.c_str(), &at, 10);
  while (*at != '\0') {
    char* next = nullptr;
    const double loss = std::strtod(at, &next);
    const char* const second = next;
    const double norm = std::strtod(second, &next);
    if (next == second)
      throw UserError(concat("the checkpoint's statistics of steps end in the middle of a step: '", at, "'"),
                      ExitCode::kBadData);
    steps_.push_back({loss, norm});
    at = next;
  }
  // A smaller window than the checkpoint's sees its last steps.
  if (steps_.size() > window_) steps_.erase(steps_.begin(), steps_.end() - static_cast<int64_t>(window_));
}

}  // namespace espalier::train
