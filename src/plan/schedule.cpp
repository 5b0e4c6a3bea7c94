#include "plan/schedule.h"

#include <algorithm>

namespace espalier::plan {

std::vector<Action> schedule_1f1b(int64_t num_stages, int64_t stage, int64_t num_micro_batches) {
  const int64_t ahead = std::min(num_stages - stage - 1, num_micro_batches);
  std::vector<Action> actions;
  for (int64_t forward = 0; forward < ahead; ++forward) actions.push_back({Action::Kind::kForward, forward});
  for (int64_t step = 0; step < num_micro_batches - ahead; ++step) {
    actions.push_back({Action::Kind::kForward, ahead + step});
    actions.push_back({Action::Kind::kBackward, step});
  }
  for (int64_t backward = num_micro_batches - ahead; backward < num_micro_batches; ++backward)
    actions.push_back({Action::Kind::kBackward, backward});
  return actions;
}

}  // namespace espalier::plan
