// espalier-engine replay: a step of a run once more, on forked ranks of this machine, and what differs.
#pragma once

#include <string>
#include <vector>

namespace espalier {

int replay(const std::vector<std::string>& arguments);

}  // namespace espalier
