#include "plan/simulate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"

namespace espalier::plan {
namespace {

using Kind = Action::Kind;
using Tables = std::vector<std::vector<Action>>;

struct Clock {
  const Tables& tables;
  const std::vector<ActionTimes>& times;
  int64_t num_parts = 0;
  bool has_weight_grads = false;
  // When forward and backward of (part, micro-batch) are done.
  std::map<std::pair<int64_t, int64_t>, double> forward_end, backward_end;

  int64_t part(size_t stage, const Action& action) const {
    return action.chunk * static_cast<int64_t>(tables.size()) + static_cast<int64_t>(stage);
  }
  std::optional<double> ready(size_t stage, const Action& action) const;
  const ActionTimes& times_of(size_t stage, const Action& action) const {
    return times[times.size() == tables.size() ? stage : static_cast<size_t>(part(stage, action))];
  }
  double duration(size_t stage, const Action& action) const;
};

// When the inputs of an action are ready; nothing while they are not known.
std::optional<double> Clock::ready(size_t stage, const Action& action) const {
  if (action.kind == Kind::kWeightGrad) return 0;  // its backward is before it in the same table
  const bool is_forward = action.kind == Kind::kForward;
  const int64_t here = part(stage, action);
  if (here == (is_forward ? 0 : num_parts - 1)) return 0;
  const int64_t from = is_forward ? here - 1 : here + 1;
  const auto& ends = is_forward ? forward_end : backward_end;
  const auto found = ends.find({from, action.micro_batch});
  if (found == ends.end()) return std::nullopt;
  const int64_t num_stages = static_cast<int64_t>(tables.size());
  const size_t sender = static_cast<size_t>(from % num_stages);
  const Action sent{action.kind, action.micro_batch, from / num_stages};
  return found->second + (sender == stage ? 0 : times_of(sender, sent).message);
}

double Clock::duration(size_t stage, const Action& action) const {
  const ActionTimes& of_part = times_of(stage, action);
  switch (action.kind) {
    case Kind::kForward: return of_part.forward;
    case Kind::kBackward: return of_part.backward_input + (has_weight_grads ? 0 : of_part.backward_weight);
    case Kind::kWeightGrad: return of_part.backward_weight;
  }
  return 0;
}

int64_t most_alive(const std::vector<Action>& table, bool has_weight_grads) {
  const Kind last = has_weight_grads ? Kind::kWeightGrad : Kind::kBackward;
  int64_t alive = 0, most = 0;
  for (const Action& action : table) {
    if (action.kind == Kind::kForward) most = std::max(most, ++alive);
    if (action.kind == last) --alive;
  }
  return most;
}

}  // namespace

Simulation simulate(const Tables& tables, const std::vector<ActionTimes>& times) {
  Clock clock{tables, times};
  for (const auto& table : tables)
    for (const Action& action : table) {
      clock.num_parts = std::max(clock.num_parts, (action.chunk + 1) * static_cast<int64_t>(tables.size()));
      clock.has_weight_grads |= action.kind == Kind::kWeightGrad;
    }
  ESPALIER_CHECK(times.size() == tables.size() || static_cast<int64_t>(times.size()) == clock.num_parts, tables.size(),
                 " stages, ", clock.num_parts, " parts, times of ", times.size());
  Simulation result;
  result.spans.resize(tables.size());
  double busy = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < tables.size(); ++stage) {
      auto& spans = result.spans[stage];
      while (spans.size() < tables[stage].size()) {
        const Action& action = tables[stage][spans.size()];
        const std::optional<double> ready = clock.ready(stage, action);
        if (!ready) break;
        const double start = std::max(*ready, spans.empty() ? 0 : spans.back().end);
        const double end = start + clock.duration(stage, action);
        spans.push_back({start, end});
        const std::pair<int64_t, int64_t> key = {clock.part(stage, action), action.micro_batch};
        if (action.kind == Kind::kForward) clock.forward_end[key] = end;
        if (action.kind == Kind::kBackward) clock.backward_end[key] = end;
        busy += end - start;
        result.end = std::max(result.end, end);
        moved = true;
      }
    }
  }
  for (size_t stage = 0; stage < tables.size(); ++stage) {
    ESPALIER_CHECK(result.spans[stage].size() == tables[stage].size(), "stage ", stage, " waits forever at action ",
                   result.spans[stage].size());
    result.most_alive.push_back(most_alive(tables[stage], clock.has_weight_grads));
  }
  if (result.end > 0) result.bubble_share = 1 - busy / (result.end * static_cast<double>(tables.size()));
  return result;
}

Simulation simulate(const Tables& tables, double forward_time, double backward_input_time,
                    double backward_weight_time) {
  return simulate(tables, std::vector<ActionTimes>(
                              tables.size(), ActionTimes{forward_time, backward_input_time, backward_weight_time, 0}));
}

}  // namespace espalier::plan
