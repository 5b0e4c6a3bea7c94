// The metrics that task files of lm_eval 0.4 name.
#pragma once

#include <vector>

#include "eval/internal/lm_eval_rules.h"
#include "eval/task_files.h"

namespace espalier::eval {

// Those of metric_list, or the harness's own of that kind of request, once for each filter: those of `filters` where
// texts are generated, else those whose names the file has. What is not supported is added to `problems`.
std::vector<Metric> lm_eval_metrics(const TaskFile& file, OutputKind output, const std::vector<AnswerFilter>& filters,
                                    Problems& problems);

}  // namespace espalier::eval
