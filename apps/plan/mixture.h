// What a run of `espalier plan` reads of its data sets, where they exist.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "config/run_config.h"
#include "data/mixture_table.h"

namespace espalier {

// Empty where the run names no data or no length, where token files are missing, or where its samples are not those of
// running text. UserErrors of what it names.
std::vector<data::MixtureRow> mixture_of(const config::RunConfig& config);

nlohmann::ordered_json mixture_json(const std::vector<data::MixtureRow>& rows);

}  // namespace espalier
