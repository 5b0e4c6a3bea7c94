// What training refuses is refused once, before a rank starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

// Runs `espalier WORDS --validate-only`, words being train gpt ..., for that many ranks; problems go to stderr.
// Returns its exit code.
int check_training(const std::vector<std::string>& words, int64_t world_size);

}  // namespace espalier
