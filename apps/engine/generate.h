// espalier generate: its options, and the run of them.
#pragma once

#include <string>
#include <vector>

namespace espalier {

int generate(const std::vector<std::string>& arguments);

}  // namespace espalier
