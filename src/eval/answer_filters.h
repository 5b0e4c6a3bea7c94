// What task files of lm_eval 0.4 make of generated texts before they are scored: filter_list.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/task.h"
#include "eval/task_files.h"

namespace espalier::eval {

// Those of the file, or the harness's own where it has none. What is not supported is added to `problems`.
std::vector<AnswerFilter> read_answer_filters(const TaskFile& file, int64_t repeats, Problems& problems);

}  // namespace espalier::eval
