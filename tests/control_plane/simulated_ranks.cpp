#include "tests/control_plane/simulated_ranks.h"

#include <signal.h>

#include <algorithm>

#include "base/error.h"

namespace espalier::control_plane {

using launch::Failure;
using launch::Round;

SimulatedRanks::SimulatedRanks(SimulatedTraining& training, const Round& round, RanksOwner owner)
    : training_(training),
      group_(training.group(round)),
      node_(round.node),
      machine_(static_cast<int>(round.nodes[round.node].node_rank)),
      first_rank_(round.first_rank),
      host_(round.nodes[round.node].address),
      pid_(round.nodes[round.node].pid),
      owner_(std::move(owner)),
      ranks_(static_cast<size_t>(round.nodes[round.node].num_ranks)),
      joined_(training.fibers().now()),
      watch_(make_watch(round)),
      watched_since_(joined_),
      num_seen_running_(round.nodes[round.node].num_ranks) {
  freeze_at_start();
  training_.join(group_, this, node_);
  std::vector<Hang> hangs;
  hangs.swap(training_.hangs_to_come(machine_));
  for (const Hang& hang : hangs) plant(hang);
  if (group_.has_failed) lose_peers();
}

SimulatedRanks::~SimulatedRanks() {
  for (const Hang& hang : hangs_at_exit_) training_.hangs_to_come(machine_).push_back(hang);
  training_.leave(group_, node_);
}

void SimulatedRanks::reap() {
  failures_.insert(failures_.end(), unseen_failures_.begin(), unseen_failures_.end());
  unseen_failures_.clear();
  num_seen_running_ = std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.has_ended; });
}

Sight SimulatedRanks::sight() const {
  Sight sight;
  sight.is_open = true;
  sight.phase = group_.has_begun ? RunPhase::kTrain : RunPhase::kLoad;
  if (training_.scenario().has_phases && !group_.has_failed) sight.phase = place(0).phase;
  sight.step = group_.has_begun ? training_.steps_done(group_) + 1 : 0;
  if (group_.clock.has_begun()) sight.folder = "run";
  return sight;
}

void SimulatedRanks::send(int signal) {
  ++num_signals_;
  if (signal == SIGUSR2 || !any_runs()) return;
  training_.stop_well(group_);
}

// Most end soon; some have to be killed, as those that are stopped.
void SimulatedRanks::stop(int, double patience_seconds) {
  reap();
  if (!any_runs()) return;
  const bool is_stubborn = training_.random().chance(0.1);
  const bool any_stopped = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return !rank.has_ended && rank.frozen && rank.frozen->hang.kind == HangKind::kStopped;
  });
  const double time = is_stubborn ? patience_seconds : std::min(patience_seconds, training_.random().between(0, 0.3));
  training_.fibers().sleep(nanoseconds(any_stopped ? patience_seconds : time));
  for (Rank& rank : ranks_) rank.has_ended = true, rank.frozen.reset();
  unseen_failures_.clear();
  num_seen_running_ = 0;
}

// Most leave soon, some not in time, and none that hangs.
int64_t SimulatedRanks::hold(double patience_seconds) {
  const bool any_stubborn = training_.random().chance(0.1);
  const bool any_frozen = std::any_of(ranks_.begin(), ranks_.end(),
                                      [](const Rank& rank) { return !rank.has_ended && rank.frozen.has_value(); });
  const double time = any_stubborn ? patience_seconds : training_.random().between(0, 0.3);
  training_.fibers().sleep(nanoseconds(any_frozen ? patience_seconds : time));
  reap();
  if (any_stubborn) rank(training_.random().up_to(std::ssize(ranks_) - 1)).has_ended = true;
  for (Rank& rank : ranks_)
    if (rank.frozen) rank.has_ended = true, rank.frozen.reset();
  const int64_t count = std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.has_ended; });
  training_.note_held(count);
  are_held_ = true;
  return count;
}

bool SimulatedRanks::any_runs() const {
  return !are_held_ && std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.has_ended; });
}

std::optional<int64_t> SimulatedRanks::running_rank(Random& random) const {
  if (!any_runs()) return std::nullopt;
  while (true)
    if (const int64_t number = random.up_to(std::ssize(ranks_) - 1); !rank(number).has_ended) return number;
}

std::optional<int64_t> SimulatedRanks::waiting_rank() const {
  for (int64_t number = 0; number < std::ssize(ranks_); ++number)
    if (!are_held_ && !rank(number).has_ended && !rank(number).frozen) return number;
  return std::nullopt;
}

void SimulatedRanks::end(int64_t local_rank, int signal, int exit_code) {
  Rank& ended = rank(local_rank);
  if (ended.has_ended) return;
  ended.has_ended = true;
  if (signal == 0 && exit_code == 0) {
    ++num_well_;
  } else {
    Failure failure;
    failure.rank = first_rank_ + local_rank, failure.local_rank = local_rank;
    failure.host = host_, failure.pid = pid_;
    failure.signal = signal, failure.exit_code = exit_code;
    failure.time = training_.seconds_since_1970();
    failure.phase = to_string(sight().phase), failure.step = sight().step;
    if (ended.frozen) {
      const Place& place = ended.frozen->place;
      failure.phase = place.is_open ? to_string(place.phase) : "", failure.step = place.step;
      failure.message = ended.frozen->named_as;
    }
    unseen_failures_.push_back(failure);
  }
  ended.frozen.reset();
  owner_.hear_of_end();
}

// Some notice at once, some only when they are ended. Those that may be held wait.
void SimulatedRanks::lose_peers() {
  if (may_be_held()) return;
  for (int64_t number = 0; number < std::ssize(ranks_); ++number) {
    if (rank(number).has_ended || training_.random().chance(0.3)) continue;
    in_time(nanoseconds(training_.random().between(0.01, 0.5)), [this, number] {
      if (!rank(number).frozen) end(number, 0, static_cast<int>(ExitCode::kLostPeer));
    });
  }
}

void SimulatedRanks::end_well() {
  for (int64_t number = 0; number < std::ssize(ranks_); ++number)
    in_time(nanoseconds(training_.random().between(0, 0.2)), [this, number] {
      if (!rank(number).frozen) end(number, 0, 0);
    });
}

}  // namespace espalier::control_plane
