// Lists ranks in words: "rank 3", "ranks 0, 1, 5", "ranks 0, 1, 2, 3, 4, 5, 6, 7, and 56 more".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::launch::internal {

std::string ranks_in_words(const std::vector<int64_t>& ranks);

}  // namespace espalier::launch::internal
