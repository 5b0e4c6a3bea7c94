// The machines that are built in, in the form of a user's file.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace espalier::plan::internal {

// Name and TOML.
const std::vector<std::pair<std::string, std::string>>& builtin_machines();

}  // namespace espalier::plan::internal
