#include "plan/schedule.h"

#include <algorithm>

#include "base/error.h"

namespace espalier::plan {
namespace {

using Kind = Action::Kind;

// Entry k of the order in which chunks pass: groups of num_stages micro-batches through chunk 0, then 1, and so on
// (backwards from the last chunk to the first).
Action interleaved_action(Kind kind, int64_t k, int64_t num_stages, int64_t num_chunks) {
  const int64_t group = k / (num_stages * num_chunks), place = k % (num_stages * num_chunks);
  const int64_t chunk = place / num_stages;
  return {kind, group * num_stages + place % num_stages, kind == Kind::kForward ? chunk : num_chunks - 1 - chunk};
}

}  // namespace

std::vector<Action> schedule_1f1b(int64_t num_stages, int64_t stage, int64_t num_micro_batches) {
  const int64_t ahead = std::min(num_stages - stage - 1, num_micro_batches);
  std::vector<Action> actions;
  for (int64_t forward = 0; forward < ahead; ++forward) actions.push_back({Kind::kForward, forward});
  for (int64_t step = 0; step < num_micro_batches - ahead; ++step) {
    actions.push_back({Kind::kForward, ahead + step});
    actions.push_back({Kind::kBackward, step});
  }
  for (int64_t backward = num_micro_batches - ahead; backward < num_micro_batches; ++backward)
    actions.push_back({Kind::kBackward, backward});
  return actions;
}

std::vector<Action> schedule_interleaved(int64_t num_stages, int64_t stage, int64_t num_micro_batches,
                                         int64_t num_chunks) {
  ESPALIER_CHECK(num_micro_batches % num_stages == 0, num_micro_batches, " micro-batches, ", num_stages, " stages");
  const int64_t total = num_micro_batches * num_chunks;
  const int64_t ahead = std::min((num_stages - stage - 1) * 2 + (num_chunks - 1) * num_stages, total);
  std::vector<Action> actions;
  for (int64_t step = 0; step < total + ahead; ++step) {
    if (step < total) actions.push_back(interleaved_action(Kind::kForward, step, num_stages, num_chunks));
    if (step >= ahead) actions.push_back(interleaved_action(Kind::kBackward, step - ahead, num_stages, num_chunks));
  }
  return actions;
}

std::vector<Action> schedule_zero_bubble(int64_t num_stages, int64_t stage, int64_t num_micro_batches) {
  const int64_t ahead = std::min(num_stages - stage - 1, num_micro_batches);
  const int64_t waiting = std::min(stage, num_micro_batches);  // weight gradients that wait until the end
  std::vector<Action> actions;
  for (int64_t step = 0; step < num_micro_batches + ahead; ++step) {
    if (step < num_micro_batches) actions.push_back({Kind::kForward, step});
    const int64_t backward = step - ahead;
    if (backward >= 0) actions.push_back({Kind::kBackward, backward});
    if (backward >= waiting) actions.push_back({Kind::kWeightGrad, backward - waiting});
  }
  for (int64_t grad = num_micro_batches - waiting; grad < num_micro_batches; ++grad)
    actions.push_back({Kind::kWeightGrad, grad});
  return actions;
}

std::vector<Action> make_schedule(ScheduleKind kind, int64_t num_stages, int64_t stage, int64_t num_micro_batches,
                                  int64_t num_chunks) {
  ESPALIER_CHECK(num_chunks == 1 || kind == ScheduleKind::kInterleaved, to_string(kind), " with ", num_chunks,
                 " chunks");
  switch (kind) {
    case ScheduleKind::k1F1B: return schedule_1f1b(num_stages, stage, num_micro_batches);
    case ScheduleKind::kInterleaved: return schedule_interleaved(num_stages, stage, num_micro_batches, num_chunks);
    case ScheduleKind::kZeroBubble: return schedule_zero_bubble(num_stages, stage, num_micro_batches);
  }
  return {};
}

std::vector<std::vector<Action>> make_schedules(ScheduleKind kind, int64_t num_stages, int64_t num_micro_batches,
                                                int64_t num_chunks) {
  std::vector<std::vector<Action>> tables;
  for (int64_t stage = 0; stage < num_stages; ++stage)
    tables.push_back(make_schedule(kind, num_stages, stage, num_micro_batches, num_chunks));
  return tables;
}

std::vector<Action> make_forward_schedule(int64_t num_stages, int64_t num_micro_batches, int64_t num_chunks) {
  std::vector<Action> actions;
  for (int64_t group = 0; group < num_micro_batches; group += num_stages) {
    const int64_t end = std::min(group + num_stages, num_micro_batches);
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk)
      for (int64_t micro_batch = group; micro_batch < end; ++micro_batch)
        actions.push_back({Kind::kForward, micro_batch, chunk});
  }
  return actions;
}

std::string to_string(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::k1F1B: return "1F1B";
    case ScheduleKind::kInterleaved: return "interleaved 1F1B";
    case ScheduleKind::kZeroBubble: return "ZB-H1";
  }
  return "";
}

std::string to_string(const std::vector<Action>& actions, int64_t num_chunks) {
  std::string text;
  for (const Action& action : actions) {
    const char* letter = action.kind == Kind::kForward ? "F" : action.kind == Kind::kBackward ? "B" : "W";
    text += concat(text.empty() ? "" : " ", letter, action.micro_batch);
    if (num_chunks > 1) text += concat(".", action.chunk);
  }
  return text;
}

}  // namespace espalier::plan
