// The 28 tasks that BLOOM reports, as lm_eval of mid-2022 asked and scored them (task versions 0 and 1; 0.3.0 has the
// same classes): context and continuation tokenized separately, no examples, documents shuffled.
#pragma once

#include <vector>

#include "eval/task.h"

namespace espalier::eval {

const std::vector<Task>& bloom_2022_tasks();

}  // namespace espalier::eval
