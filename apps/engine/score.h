// The engine's side of `espalier eval`: requests with ids in, the same lines with their answers out.
#pragma once

#include <string>
#include <vector>

namespace espalier {

int score(const std::vector<std::string>& arguments);

}  // namespace espalier
