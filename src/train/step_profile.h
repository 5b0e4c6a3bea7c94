// The work of some steps as a table: what the time of a step went into, on this rank.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/work_profile.h"

namespace espalier::train {

// Of a profile that covers these steps, both included. Products come with their shapes (m x n x k) and rates; what no
// span covered is "other": the glue of autograd, and what the run does between steps.
struct ProfiledSteps {
  const WorkProfile& profile;
  int64_t first = 1, last = 1;
};

// For a person: the longest rows, the shares of each kind of work, and nothing below a thousandth.
std::string profile_table(const ProfiledSteps& steps);

// {"steps": [first, last], "seconds_per_step", "work": [{"kind", "what", "m", "n", "k", "calls_per_step",
//   "seconds_per_step", "flops_per_second"}], "kinds": {kind: seconds_per_step, ..., "other"}}
nlohmann::json profile_json(const ProfiledSteps& steps);

}  // namespace espalier::train
