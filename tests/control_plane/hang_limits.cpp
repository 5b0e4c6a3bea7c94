#include "tests/control_plane/hang_limits.h"

#include <algorithm>

namespace espalier::control_plane {

HangLimits hang_limits(HangKind kind, const Place& place, std::vector<double> stretches, double hang_timeout,
                       bool is_alone) {
  HangLimits limits;
  if (hang_timeout <= 0) return limits;
  std::sort(stretches.begin(), stretches.end(), std::greater<>());
  const size_t count = stretches.size(), longest_percent = (count + 99) / 100;
  const double percentile = count == 0 ? 0 : stretches[longest_percent - 1], longest = count == 0 ? 0 : stretches[0];
  const double usual = 5 * percentile, usual_most = 10 * percentile + 1e-5;
  const auto at_least = [&](double seconds, bool knows_longest) {
    const double least = std::max({seconds, hang_timeout, knows_longest ? 3 * longest : 0});
    limits.least = std::max(least, usual), limits.most = std::max(least, usual_most);
  };
  at_least(60, true);
  limits.told_least = limits.least, limits.told_most = limits.most;
  const bool works = place.phase == RunPhase::kTrain || place.phase == RunPhase::kEvaluate;
  // Near a hundred it is not said here on which side of it a rank is.
  const bool may_be_known = count >= 90, is_known = count >= 110;
  switch (kind) {
    case HangKind::kStopped: at_least(0, false); break;
    case HangKind::kAsleep: at_least(works ? 0 : 15, false); break;
    case HangKind::kDisk: at_least(60, true); break;
    case HangKind::kBusy:
      if (!may_be_known) limits.least = kNever;
      if (!is_known) limits.most = kNever;
      break;
    case HangKind::kExchange:  // it is for whoever waits that time is limited
      at_least(30, true);
      if (!is_alone) limits.least = limits.most = kNever;
      limits.told_least = limits.told_most = kNever;
      break;
  }
  return limits;
}

}  // namespace espalier::control_plane
