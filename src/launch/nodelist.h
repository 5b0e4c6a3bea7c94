// SLURM's short forms of lists, expanded without scontrol.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::launch {

// "n[01-03,7],x2" -> n01 n02 n03 n7 x2; several brackets in a name multiply ("r[1-2]n[0-1]"). UserError if it is not
// such a list.
std::vector<std::string> expand_nodelist(const std::string& text);

// SLURM_TASKS_PER_NODE: "2(x3),1" -> 2 2 2 1.
std::vector<int64_t> expand_tasks_per_node(const std::string& text);

}  // namespace espalier::launch
