#include "tests/control_plane/simulated_training.h"

#include <signal.h>

#include <algorithm>

#include "base/error.h"

namespace espalier::control_plane {

using launch::Failure;
using launch::Round;

Group& SimulatedTraining::group(const Round& round) {
  Group& group = groups_[{run_, round.number}];
  if (group.machines.empty()) {
    group.run = run_, group.round = round.number;
    for (const launch::Node& node : round.nodes) group.machines.push_back(node.id);
    group.parts.resize(round.nodes.size());
    group.first_step = in_memory_;
  }
  return group;
}

void SimulatedTraining::join(Group& group, SimulatedRanks* part, size_t node) {
  group.parts[node] = part;
  if (++group.num_started == group.parts.size() && !group.has_failed)
    fibers_.at(fibers_.now() + nanoseconds(scenario_.load_seconds), [this, &group] { begin(group); });
}

void SimulatedTraining::leave(Group& group, size_t node) {
  const bool ran = group.parts[node]->any_runs();
  group.parts[node] = nullptr;
  if (!ran || group.has_failed) return;
  fail(group, node, 0, 0, 0);
}

int64_t SimulatedTraining::steps_done(const Group& group) const {
  if (group.end_step) return *group.end_step;
  if (!group.begin) return group.first_step;
  const auto done =
      static_cast<int64_t>(static_cast<double>(fibers_.now() - *group.begin) * 1e-9 / scenario_.step_seconds);
  return std::min(group.first_step + done, scenario_.num_steps);
}

void SimulatedTraining::begin(Group& group) {
  if (group.has_failed) return;
  group.begin = fibers_.now();
  if (group.is_told_to_stop) {
    end_well(group);
    return;
  }
  const auto time_of = [&](int64_t step) {
    return fibers_.now() + nanoseconds(scenario_.step_seconds * static_cast<double>(step - group.first_step));
  };
  if (scenario_.bad_step >= group.first_step && scenario_.bad_step < scenario_.num_steps)
    fibers_.at(time_of(scenario_.bad_step) + 1, [this, &group] {
      if (!group.end_step) fail(group, group.parts.size() - 1, 0, 0, 1);
    });
  fibers_.at(time_of(scenario_.num_steps) + 2, [this, &group] {
    if (!group.end_step) end_well(group);
  });
}

void SimulatedTraining::stop_well(Group& group) {
  if (group.has_failed || std::exchange(group.is_told_to_stop, true) || !group.begin) return;
  fibers_.at(fibers_.now() + nanoseconds(scenario_.step_seconds), [this, &group] {
    if (!group.end_step) end_well(group);
  });
}

void SimulatedTraining::end_well(Group& group) {
  group.end_step = steps_done(group);
  on_disk_ = in_memory_ = *group.end_step;
  if (on_disk_ > furthest_) furthest_ = on_disk_, ++num_gains_;
  is_complete_ = is_complete_ || on_disk_ >= scenario_.num_steps;
  has_stopped_well_ = has_stopped_well_ || !is_complete_;
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
  }
  group.has_failed = true;
  if (group.parts[node] != nullptr) group.parts[node]->end(local_rank, signal, exit_code);
  for (SimulatedRanks* part : group.parts)
    if (part != nullptr) part->lose_peers();
}

SimulatedRanks::SimulatedRanks(SimulatedTraining& training, const Round& round, std::function<void()> on_end)
    : training_(training),
      group_(training.group(round)),
      node_(round.node),
      first_rank_(round.first_rank),
      host_(round.nodes[round.node].address),
      pid_(round.nodes[round.node].pid),
      on_end_(std::move(on_end)),
      has_ended_(static_cast<size_t>(round.nodes[round.node].num_ranks)),
      num_seen_running_(round.nodes[round.node].num_ranks) {
  training_.join(group_, this, node_);
  if (group_.has_failed) lose_peers();
}

void SimulatedRanks::reap() {
  failures_.insert(failures_.end(), unseen_failures_.begin(), unseen_failures_.end());
  unseen_failures_.clear();
  num_seen_running_ = std::count(has_ended_.begin(), has_ended_.end(), false);
}

Sight SimulatedRanks::sight() const {
  Sight sight;
  sight.is_open = true;
  sight.phase = group_.begin ? RunPhase::kTrain : RunPhase::kLoad;
  sight.step = group_.begin ? training_.steps_done(group_) + 1 : 0;
  return sight;
}

void SimulatedRanks::send(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2 || !any_runs()) return;
  training_.stop_well(group_);
}

// Most end soon; some have to be killed.
void SimulatedRanks::stop(int, double patience_seconds) {
  reap();
  if (!any_runs()) return;
  const bool is_stubborn = training_.random().chance(0.1);
  training_.fibers().sleep(
      nanoseconds(is_stubborn ? patience_seconds : std::min(patience_seconds, training_.random().between(0, 0.3))));
  has_ended_.assign(has_ended_.size(), true);
  unseen_failures_.clear();
  num_seen_running_ = 0;
}

// Most leave soon, some not in time.
int64_t SimulatedRanks::hold(double patience_seconds) {
  const bool any_stubborn = training_.random().chance(0.1);
  training_.fibers().sleep(nanoseconds(any_stubborn ? patience_seconds : training_.random().between(0, 0.3)));
  reap();
  if (any_stubborn) has_ended_[static_cast<size_t>(training_.random().up_to(std::ssize(has_ended_) - 1))] = true;
  const int64_t count = std::count(has_ended_.begin(), has_ended_.end(), false);
  training_.note_held(count);
  are_held_ = true;
  return count;
}

bool SimulatedRanks::any_runs() const {
  return !are_held_ && std::count(has_ended_.begin(), has_ended_.end(), false) > 0;
}

std::optional<int64_t> SimulatedRanks::running_rank(Random& random) const {
  if (!any_runs()) return std::nullopt;
  while (true)
    if (const int64_t rank = random.up_to(std::ssize(has_ended_) - 1); !has_ended_[static_cast<size_t>(rank)])
      return rank;
}

void SimulatedRanks::end(int64_t local_rank, int signal, int exit_code) {
  if (has_ended_[static_cast<size_t>(local_rank)]) return;
  has_ended_[static_cast<size_t>(local_rank)] = true;
  if (signal == 0 && exit_code == 0) {
    ++num_well_;
  } else {
    Failure failure;
    failure.rank = first_rank_ + local_rank, failure.local_rank = local_rank;
    failure.host = host_, failure.pid = pid_;
    failure.signal = signal, failure.exit_code = exit_code;
    failure.time = training_.seconds_since_1970();
    failure.phase = to_string(sight().phase), failure.step = sight().step;
    unseen_failures_.push_back(failure);
  }
  on_end_();
}

// Some notice at once, some only when they are ended. Those that may be held wait.
void SimulatedRanks::lose_peers() {
  if (may_be_held()) return;
  for (int64_t rank = 0; rank < std::ssize(has_ended_); ++rank) {
    if (has_ended_[static_cast<size_t>(rank)] || training_.random().chance(0.3)) continue;
    training_.fibers().at(training_.fibers().now() + nanoseconds(training_.random().between(0.01, 0.5)),
                          [this, rank, exists = std::weak_ptr<bool>(exists_)] {
                            if (!exists.expired()) end(rank, 0, static_cast<int>(ExitCode::kLostPeer));
                          });
  }
}

void SimulatedRanks::end_well() {
  for (int64_t rank = 0; rank < std::ssize(has_ended_); ++rank)
    training_.fibers().at(training_.fibers().now() + nanoseconds(training_.random().between(0, 0.2)),
                          [this, rank, exists = std::weak_ptr<bool>(exists_)] {
                            if (!exists.expired()) end(rank, 0, 0);
                          });
}

}  // namespace espalier::control_plane
