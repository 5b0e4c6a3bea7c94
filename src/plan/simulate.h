// What a pipeline's tables cost: every stage follows its own, an action starts when the stage is free and what it needs
// has arrived. The clock is in whatever unit the times have.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule.h"

namespace espalier::plan {

// Of one action (one chunk, one micro-batch).
struct ActionTimes {
  double forward = 1, backward_input = 1, backward_weight = 1;
  double message = 0;  // from the end of an action to where its message can be used on another stage
};

struct Span {
  double start = 0, end = 0;
};

struct Simulation {
  std::vector<std::vector<Span>> spans;  // of each stage's actions, in the order of its table
  double end = 0;                        // when the last stage is done
  double bubble_share = 0;               // idle time of all stages / (stages * end)
  // Of each stage: the most (micro-batch, chunk) pairs whose activations it holds at once, from the start of their
  // forward to the end of their backward (of their weight gradient where the table has those).
  std::vector<int64_t> most_alive;
};

// The tables must be good (check_schedule); CHECKs that no stage waits forever. `times`: of each stage. A backward
// takes both its times where the tables hold no weight gradients.
Simulation simulate(const std::vector<std::vector<Action>>& tables, const std::vector<ActionTimes>& times);
// The same times for every stage.
Simulation simulate(const std::vector<std::vector<Action>>& tables, double forward_time, double backward_input_time,
                    double backward_weight_time);

}  // namespace espalier::plan
