#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "base/error.h"
#include "plan/schedule.h"

namespace espalier::plan {
namespace {

using Kind = Action::Kind;
using Tables = std::vector<std::vector<Action>>;

std::string name(size_t stage, const Action& action, int64_t num_chunks) {
  return concat(to_string({action}, num_chunks), " of stage ", stage);
}

// Counts and order within each stage.
std::string check_stage(size_t stage, const std::vector<Action>& table, int64_t num_micro_batches, int64_t num_chunks,
                        bool forward_only) {
  std::map<std::tuple<Kind, int64_t, int64_t>, int64_t> counts;
  std::deque<Action> waiting;  // backwards whose weight gradient is to come
  for (const Action& action : table) {
    if (action.micro_batch < 0 || action.micro_batch >= num_micro_batches || action.chunk < 0 ||
        action.chunk >= num_chunks)
      return name(stage, action, num_chunks) + " does not exist";
    if (++counts[{action.kind, action.micro_batch, action.chunk}] > 1)
      return name(stage, action, num_chunks) + " comes twice";
    if (action.kind == Kind::kBackward) {
      if (!counts.contains({Kind::kForward, action.micro_batch, action.chunk}))
        return name(stage, action, num_chunks) + " comes before its forward";
      waiting.push_back(action);
    }
    if (action.kind == Kind::kWeightGrad) {
      if (waiting.empty() || waiting.front().micro_batch != action.micro_batch || waiting.front().chunk != action.chunk)
        return name(stage, action, num_chunks) + " is not of the oldest backward that waits";
      waiting.pop_front();
    }
  }
  const int64_t each = num_micro_batches * num_chunks;
  const auto count = [&](Kind kind) {
    return std::count_if(table.begin(), table.end(), [&](const Action& action) { return action.kind == kind; });
  };
  const int64_t backwards = count(Kind::kBackward), weight_grads = count(Kind::kWeightGrad);
  if (count(Kind::kForward) != each || backwards != (forward_only ? 0 : each) ||
      (weight_grads != 0 && weight_grads != backwards))
    return concat("stage ", stage, " has ", count(Kind::kForward), " forwards, ", backwards, " backwards and ",
                  weight_grads, " weight gradients of ", each);
  return "";
}

// Runs all stages; messages wait in a queue for each pair of stages and direction of the pass.
struct Exchange {
  const Tables& tables;
  int64_t num_chunks;
  std::map<std::tuple<size_t, size_t, Kind>, std::deque<Action>> queues;
  std::vector<size_t> next;

  // The stage and chunk that an action's message comes from (step -1) or goes to (step 1); false at the ends.
  bool peer(size_t stage, const Action& action, int64_t step, size_t& peer_stage, Action& peer_action) const;
  // Runs the next action of a stage if it can; a message out of order is returned as text.
  bool advance(size_t stage, std::string& wrong);
};

bool Exchange::peer(size_t stage, const Action& action, int64_t step, size_t& peer_stage, Action& peer_action) const {
  const int64_t num_stages = static_cast<int64_t>(tables.size());
  const int64_t part = action.chunk * num_stages + static_cast<int64_t>(stage);
  const int64_t other = part + (action.kind == Kind::kForward ? step : -step);
  if (other < 0 || other >= num_stages * num_chunks) return false;
  peer_stage = static_cast<size_t>(other % num_stages);
  peer_action = {action.kind, action.micro_batch, other / num_stages};
  return true;
}

bool Exchange::advance(size_t stage, std::string& wrong) {
  if (next[stage] == tables[stage].size()) return false;
  const Action& action = tables[stage][next[stage]];
  size_t other = 0;
  Action message;
  if (action.kind != Kind::kWeightGrad) {
    if (peer(stage, action, -1, other, message)) {
      std::deque<Action>& queue = queues[{other, stage, action.kind}];
      if (queue.empty()) return false;
      if (!(queue.front() == message))
        wrong =
            concat(name(stage, action, num_chunks), " meets the message of ", name(other, queue.front(), num_chunks));
      queue.pop_front();
    }
    if (peer(stage, action, 1, other, message)) queues[{stage, other, action.kind}].push_back(action);
  }
  ++next[stage];
  return true;
}

}  // namespace

std::string check_schedule(const Tables& tables, int64_t num_micro_batches, int64_t num_chunks, bool forward_only) {
  for (size_t stage = 0; stage < tables.size(); ++stage) {
    const std::string wrong = check_stage(stage, tables[stage], num_micro_batches, num_chunks, forward_only);
    if (!wrong.empty()) return wrong;
  }
  Exchange exchange{tables, num_chunks, {}, std::vector<size_t>(tables.size(), 0)};
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < tables.size(); ++stage) {
      std::string wrong;
      while (exchange.advance(stage, wrong)) {
        moved = true;
        if (!wrong.empty()) return wrong;
      }
    }
  }
  for (size_t stage = 0; stage < tables.size(); ++stage)
    if (exchange.next[stage] < tables[stage].size())
      return name(stage, tables[stage][exchange.next[stage]], num_chunks) + " waits forever";
  return "";
}

}  // namespace espalier::plan
