#pragma once

#include <string>
#include <vector>

namespace espalier {

int backup_checkpoints_main(const std::vector<std::string>& arguments);

}  // namespace espalier
