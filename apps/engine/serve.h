#pragma once

#include <string>
#include <vector>

namespace espalier {

int serve_model(const std::vector<std::string>& arguments);

}  // namespace espalier
