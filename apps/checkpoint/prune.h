// espalier checkpoint prune.
#pragma once

#include <string>
#include <vector>

namespace espalier {

int prune_checkpoints_main(const std::vector<std::string>& arguments);

}  // namespace espalier
