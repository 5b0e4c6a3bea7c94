// What the page of runs shows of one run besides its records, each made when somebody opens it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "report/log_tail.h"

namespace espalier {

// Where each rank on this machine is, as `espalier ctl RUN status` has it: {"phase", "step", "paused", "ranks": [...]}.
// {"ranks": [], "why": "..."} where no launcher on this machine answers for the run.
nlohmann::ordered_json ranks_of_run(const std::filesystem::path& folder);

// The schedule and the memory planned for the run in its own layout, as SVG. A UserError where the options of the run,
// or its tokenizer, can no longer be read.
std::string plan_picture_of_run(const std::filesystem::path& folder);

// The samples that a step read or will read, with their texts: {"step", "fate", "as_recorded", "count", "samples":
// [...]}, at most `most` of them. "as_recorded" is null where no record of the step has a hash of its samples. A
// UserError for a step that the run does not have, and where its token files or tokenizer are gone.
nlohmann::ordered_json texts_of_step(const std::filesystem::path& folder, int64_t step, int64_t most);

// The last lines of what the run's processes logged, or what came after (file, bytes) that an earlier answer gave:
// {"anew", "text", "file", "bytes"}. Without text where the run keeps no log.
nlohmann::ordered_json log_of_run(const std::filesystem::path& folder, const report::LogPlace& since);

}  // namespace espalier
