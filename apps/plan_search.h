// `espalier plan FAMILY --search`.
#pragma once

#include <string>
#include <vector>

#include "plan_request.h"

namespace espalier {

// `arguments` are those that the request was read from. Prints, and returns the exit code.
int search_main(const std::vector<std::string>& arguments, const PlanRequest& request);

}  // namespace espalier
