#include "plan/step_samples.h"

#include <algorithm>

namespace espalier::plan {

StepSamples::StepSamples(const BatchRamp& ramp, int64_t num_steps, const std::vector<StepRecord>& records) {
  if (!records.empty()) num_steps = std::max(num_steps, records.back().step);
  ranges_.reserve(static_cast<size_t>(std::max<int64_t>(num_steps, 0)));
  size_t next = 0;
  int64_t consumed = 0;
  for (int64_t step = 1; step <= num_steps; ++step) {
    while (next < records.size() && records[next].step < step) ++next;
    SampleRange range{consumed, ramp.global_batch_size(consumed)};
    if (next < records.size() && records[next].step == step) {
      const StepRecord& record = records[next];
      const int64_t first = record.num_samples > 0 ? record.consumed_samples - record.num_samples : consumed;
      range = {first, record.consumed_samples - first};
    }
    ranges_.push_back(range);
    consumed = range.first + range.count;
  }
}

std::optional<int64_t> StepSamples::step_of(int64_t sample) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), sample,
                                      [](int64_t value, const SampleRange& range) { return value < range.first; });
  if (sample < 0 || after == ranges_.begin()) return std::nullopt;
  const SampleRange& range = *(after - 1);
  if (sample >= range.first + range.count) return std::nullopt;
  return after - ranges_.begin();
}

}  // namespace espalier::plan
