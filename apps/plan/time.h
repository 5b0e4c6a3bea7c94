// The part of `espalier plan` that --machine adds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apps/plan/request.h"

namespace espalier {

// Of a request with a machine. UserError where the machine cannot hold the run's ranks.
nlohmann::ordered_json time_json(const PlanRequest& request, const plan::RunShape& run);
std::string time_page(const PlanRequest& request, const plan::RunShape& run);

}  // namespace espalier
