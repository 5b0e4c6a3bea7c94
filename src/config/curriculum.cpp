#include "config/internal/curriculum.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace espalier::config::internal {

int64_t curriculum_length(const Curriculum& curriculum, int64_t step) {
  if (!curriculum.lengths.empty()) {
    const auto& ends = curriculum.last_steps;
    return curriculum.lengths[static_cast<size_t>(std::lower_bound(ends.begin(), ends.end(), step) - ends.begin())];
  }
  const int64_t unit = curriculum.length_step;
  const double done = static_cast<double>(step) / static_cast<double>(curriculum.total_steps);
  const double share = std::pow(done, 1.0 / curriculum.root_degree);
  const auto range = static_cast<double>(curriculum.max_length - curriculum.min_length);
  // Far beyond the end the share may be too large for an integer; the length is the largest there.
  const double unrounded = std::floor(share * range + static_cast<double>(curriculum.min_length));
  const double most = static_cast<double>(curriculum.max_length);
  if (unrounded > most) return curriculum.max_length;
  auto length = static_cast<int64_t>(unrounded);
  length -= length % unit;
  const int64_t least = (curriculum.min_length + unit - 1) / unit * unit;
  return std::min(std::max(length, least), curriculum.max_length);
}

// Lengths never fall, so the step at which the next begins is found by halving.
std::vector<std::string> curriculum_stages(const Curriculum& curriculum) {
  std::vector<std::string> stages;
  const int64_t end = curriculum.lengths.empty() ? curriculum.total_steps + 1 : curriculum.last_steps.back() + 1;
  for (int64_t step = 1; step <= end;) {
    const int64_t length = curriculum_length(curriculum, step);
    stages.push_back(concat(step - 1, ": ", length));
    int64_t same = step, other = end + 1;
    while (other - same > 1) {
      const int64_t middle = same + (other - same) / 2;
      (curriculum_length(curriculum, middle) == length ? same : other) = middle;
    }
    step = other;
  }
  return stages;
}

}  // namespace espalier::config::internal
