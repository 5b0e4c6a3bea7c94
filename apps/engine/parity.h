// espalier-engine parity: the run in every layout, on forked ranks of this machine, and the table that compares them.
#pragma once

#include <string>
#include <vector>

namespace espalier {

int parity(const std::vector<std::string>& arguments);

}  // namespace espalier
