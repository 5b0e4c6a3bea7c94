// espalier-engine train: one rank of a training run.
#pragma once

#include <string>
#include <vector>

namespace espalier {

int train_rank(const std::vector<std::string>& arguments);

}  // namespace espalier
