// espalier checkpoint average
#pragma once

#include <string>
#include <vector>

namespace espalier {

int average_checkpoints_main(const std::vector<std::string>& arguments);

}  // namespace espalier
