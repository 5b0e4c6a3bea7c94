// `espalier plan FAMILY --search`.
#pragma once

#include <string>
#include <vector>

#include "apps/plan/request.h"
#include "base/error.h"

namespace espalier {

// The exit code where no layout fits: a script that looks for one may try another machine.
inline constexpr ExitCode kNothingFits{3};

// `arguments` are those that the request was read from. Prints, and returns the exit code.
int search_main(const std::vector<std::string>& arguments, const PlanRequest& request);

}  // namespace espalier
