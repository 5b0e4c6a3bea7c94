#include "tests/control_plane/simulated_training.h"

#include <algorithm>

#include "base/error.h"
#include "tests/control_plane/simulated_ranks.h"

namespace espalier::control_plane {

using launch::Round;

Group& SimulatedTraining::group(const Round& round) {
  Group& group = groups_[{run_, round.number}];
  if (group.machines.empty()) {
    group.run = run_, group.round = round.number;
    for (const launch::Node& node : round.nodes) group.machines.push_back(node.id);
    group.parts.resize(round.nodes.size());
    group.clock.set_num_ranks(round.world_size);
    Timeline& timeline = group.timeline;
    timeline.seed = scenario_.seed + static_cast<uint64_t>(1000 * run_ + round.number);
    timeline.load_seconds = scenario_.load_seconds, timeline.step_seconds = scenario_.step_seconds;
    timeline.first_step = in_memory_, timeline.num_steps = scenario_.num_steps;
    timeline.steps_each_save = scenario_.steps_each_save;
    timeline.steps_each_evaluation = scenario_.steps_each_evaluation;
    timeline.start_share = scenario_.has_phases ? 0.1 : 0;
    timeline.save_share = scenario_.save_share, timeline.evaluation_share = scenario_.evaluation_share;
  }
  return group;
}

void SimulatedTraining::join(Group& group, SimulatedRanks* part, size_t node) {
  group.parts[node] = part;
  ++group.num_started;
  load(group);
}

void SimulatedTraining::leave(Group& group, size_t node) {
  const bool ran = group.parts[node]->any_runs();
  group.parts[node] = nullptr;
  if (!ran || group.has_failed) return;
  fail(group, node, 0, 0, 0);
}

int64_t SimulatedTraining::steps_done(const Group& group) const {
  if (group.end_step) return *group.end_step;
  if (!group.has_begun) return group.timeline.first_step;
  const Nanoseconds trained = group.clock.work(fibers_.now()) - nanoseconds(scenario_.load_seconds);
  const auto done = static_cast<int64_t>(static_cast<double>(trained) * 1e-9 / scenario_.step_seconds);
  return std::min(group.timeline.first_step + done, scenario_.num_steps);
}

int64_t SimulatedTraining::recorded_step() const {
  for (auto group = groups_.rbegin(); group != groups_.rend(); ++group)
    if (const int64_t step = steps_done(group->second);
        group->second.has_begun && step > group->second.timeline.first_step)
      return step;
  return -1;
}

// When so much is done, unless somebody is held up until then.
template <class What>
void SimulatedTraining::at_work(Group& group, Nanoseconds work, const What& what) {
  fibers_.at(group.clock.time_of(work), [&group, plan = group.plans, what] {
    if (group.plans == plan) what();
  });
}

// Once all are there.
void SimulatedTraining::load(Group& group) {
  if (group.num_started < group.parts.size() || group.has_failed || group.clock.any_frozen()) return;
  group.clock.begin(fibers_.now());
  at_work(group, nanoseconds(scenario_.load_seconds), [this, &group] { begin(group); });
}

void SimulatedTraining::begin(Group& group) {
  if (group.has_failed) return;
  group.has_begun = true;
  if (record_) record_("start");
  if (group.is_told_to_stop)
    end_well(group);
  else
    plan_steps(group);
}

void SimulatedTraining::plan_steps(Group& group) {
  const int64_t first = group.timeline.first_step;
  const auto work_at = [&](int64_t step) {
    return nanoseconds(scenario_.load_seconds) +
           nanoseconds(scenario_.step_seconds * static_cast<double>(step - first));
  };
  if (scenario_.bad_step >= first && scenario_.bad_step < scenario_.num_steps)
    at_work(group, work_at(scenario_.bad_step) + 1, [this, &group] {
      if (!group.end_step) fail(group, group.parts.size() - 1, 0, 0, 1);
    });
  at_work(group, work_at(scenario_.num_steps) + 2, [this, &group] {
    if (!group.end_step) end_well(group);
  });
}

void SimulatedTraining::stop_well(Group& group) {
  if (group.has_failed || std::exchange(group.is_told_to_stop, true) || !group.has_begun) return;
  stop_soon(group);
}

// After the step in progress, which somebody may not end.
void SimulatedTraining::stop_soon(Group& group) {
  if (group.clock.any_frozen()) return;
  fibers_.at(fibers_.now() + nanoseconds(scenario_.step_seconds), [this, &group, plan = group.plans] {
    if (group.plans == plan && !group.end_step) end_well(group);
  });
}

void SimulatedTraining::freeze(Group& group, int64_t rank, Nanoseconds meeting) {
  group.clock.freeze(rank, fibers_.now(), meeting);
  ++group.plans;
}

void SimulatedTraining::thaw(Group& group, int64_t rank) {
  if (!group.clock.thaw(rank, fibers_.now()) || group.is_over()) return;
  ++group.plans;
  if (!group.clock.has_begun())
    load(group);
  else if (!group.has_begun)
    at_work(group, nanoseconds(scenario_.load_seconds), [this, &group] { begin(group); });
  else {
    plan_steps(group);
    if (group.is_told_to_stop) stop_soon(group);
  }
}

bool SimulatedTraining::time_out(Group& group) {
  if (group.has_failed) return true;
  for (size_t node = 0; node < group.parts.size(); ++node)
    if (SimulatedRanks* const part = group.parts[node])
      if (const auto rank = part->waiting_rank()) {
        fail(group, node, *rank, 0, static_cast<int>(ExitCode::kLostPeer));
        return true;
      }
  return false;
}

void SimulatedTraining::end_well(Group& group) {
  group.end_step = steps_done(group);
  group.ends_well = true;
  on_disk_ = in_memory_ = *group.end_step;
  if (on_disk_ > furthest_) furthest_ = on_disk_, ++num_gains_;
  is_complete_ = is_complete_ || on_disk_ >= scenario_.num_steps;
  has_stopped_well_ = has_stopped_well_ || !is_complete_;
  if (record_) record_(on_disk_ >= scenario_.num_steps ? "end" : "stop");
  for (SimulatedRanks* part : group.parts)
    if (part != nullptr) part->begin_exit();
  if (group.num_kept_from_end == 0) end_together(group);
}

void SimulatedTraining::end_together(Group& group) {
  for (SimulatedRanks* part : group.parts)
    if (part != nullptr) part->end_well();
}

void SimulatedTraining::fail(Group& group, size_t node, int64_t local_rank, int signal, int exit_code) {
  if (!group.end_step) {
    group.end_step = steps_done(group);
    if (*group.end_step > furthest_) furthest_ = *group.end_step, ++num_gains_;
    in_memory_ = std::max(in_memory_, *group.end_step - 1);
    on_disk_ = std::max(on_disk_, *group.end_step / scenario_.steps_each_save * scenario_.steps_each_save);
    in_memory_ = std::max(in_memory_, on_disk_);
    has_copies_ = has_copies_ || in_memory_ > 0;
  }
  group.has_failed = true;
  if (group.parts[node] != nullptr) group.parts[node]->end(local_rank, signal, exit_code);
  for (SimulatedRanks* part : group.parts)
    if (part != nullptr) part->lose_peers();
}

}  // namespace espalier::control_plane
