// The part of `checkpoint import-hf` and `export-hf` that needs tensors.
#pragma once

#include <string>
#include <vector>

namespace espalier {

int compare_hf(const std::vector<std::string>& arguments);

}  // namespace espalier
