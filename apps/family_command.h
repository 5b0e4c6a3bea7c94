// Commands whose first word is a model family: espalier train gpt ..., plan gpt ..., parity gpt ...
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/family.h"

namespace espalier {

// Calls `run` with the family and all the words, the family's first. `takes`: what goes after it, in the usage line.
// UserError where there is no such family.
int run_with_family(const std::string& command, const std::string& takes, const std::vector<std::string>& arguments,
                    const std::function<int(const config::Family&, const std::vector<std::string>&)>& run);

}  // namespace espalier
