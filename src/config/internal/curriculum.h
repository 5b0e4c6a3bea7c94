// DeepSpeed's curriculum_learning with curriculum_type "seqlen": how long sequences are in each step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::config::internal {

struct Curriculum {
  int64_t min_length = 0, max_length = 0;
  // fixed_linear (degree 1) and fixed_root.
  int64_t total_steps = 0, length_step = 0;
  double root_degree = 1;
  // fixed_discrete: one length more than steps up to which each holds.
  std::vector<int64_t> lengths, last_steps;
};

// Of a step, 1 for the first. DeepSpeed's arithmetic, in doubles.
int64_t curriculum_length(const Curriculum& curriculum, int64_t step);

// The words of --seq-length-stages that say the same.
std::vector<std::string> curriculum_stages(const Curriculum& curriculum);

}  // namespace espalier::config::internal
