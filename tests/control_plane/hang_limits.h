// When the launcher is to name a rank that hangs, by the table in docs/launch.md: plain, and apart from the code that
// does it (launch/hang_watch.h).
#pragma once

#include <limits>
#include <vector>

#include "tests/control_plane/scenario.h"
#include "tests/control_plane/timeline.h"

namespace espalier::control_plane {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// In seconds without a sign of progress: not before `least`, and by `most`; the 99th percentile of what a rank is known
// for may be taken for twice as long as it is.
struct HangLimits {
  double least = kNever, most = kNever;
  double told_least = kNever, told_most = kNever;  // after the run was told to end as well
};

// `stretches`: without progress, of this rank in this phase while it worked, or waited, as it does now. `is_alone`: no
// other machine takes part.
HangLimits hang_limits(HangKind kind, const Place& place, std::vector<double> stretches, double hang_timeout,
                       bool is_alone);

}  // namespace espalier::control_plane
