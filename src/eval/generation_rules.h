// How texts are written, as task files of lm_eval 0.4 say it in generation_kwargs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/task.h"
#include "eval/task_files.h"

namespace espalier::eval {

// `max_gen_toks` overrides the file's own. What is not supported is added to `problems`; nothing then.
std::optional<Generation> read_generation(const TaskFile& file, std::optional<int64_t> max_gen_toks,
                                          Problems& problems);

// What is before the first stop, then of that what is before the second one, and so on, as the harness cuts it.
std::string before_stops(std::string text, const std::vector<std::string>& stops);

}  // namespace espalier::eval
