// What `espalier plan --machine` prints.
#pragma once

#include <string>

#include "plan/time/run_time.h"

namespace espalier::plan {

// Lines of at most about 120 columns.
std::string time_text(const RunShape& run, const Machine& machine, const StepTime& step, const RunTime& time);
// The numbers of a machine with their sources.
std::string machine_text(const Machine& machine);

}  // namespace espalier::plan
