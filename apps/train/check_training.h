// What training refuses is refused once, before a rank starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

struct TrainingCheck {
  int64_t num_nodes = 1, ranks_of_node = 1;
  std::optional<int64_t> num_ranks = {};  // of all machines, where they have different numbers
  bool runs_here = true;                  // on this machine or one like it: its memory has to suffice
  bool shows_options = false;             // on stdout, as --validate-only does
  bool is_silent = false;                 // only the exit code is wanted
};

// Runs `espalier WORDS --validate-only`, words being train gpt ..., for the ranks of one of those machines; problems go
// to stderr. Returns its exit code.
int check_training(const std::vector<std::string>& words, const TrainingCheck& check);

// Whether the words ask for nothing but that check.
bool asks_for_validation(const std::vector<std::string>& words);

}  // namespace espalier
