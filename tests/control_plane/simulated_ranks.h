// The ranks of one machine in one round, as their launcher sees them, with its watch for hangs (launch/hang_watch.h)
// over what they say of themselves.
//
// A rank may be frozen where it is. What must hold of that:
//   it is named, as where it is, in the time that docs/launch.md promises, if its launcher watches it until then
//   nobody else ever is, nor is it before that time, nor one that is stopped before it was so for --hang-timeout
//   where all ranks here are stopped, this is said instead
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/stretches.h"
#include "launch/hang_watch.h"
#include "launch/ranks.h"
#include "tests/control_plane/hang_limits.h"
#include "tests/control_plane/simulated_training.h"

namespace espalier::control_plane {

// Whoever runs the ranks.
struct RanksOwner {
  std::function<void()> hear_of_end;  // SIGCHLD
  std::function<void(const std::string&)> say, violate;
};

class SimulatedRanks : public launch::Ranks {
 public:
  SimulatedRanks(SimulatedTraining& training, const launch::Round& round, RanksOwner owner);
  ~SimulatedRanks() override;

  void reap() override;
  void end_hung(const std::optional<launch::ToldToEnd>& told) override;
  double bound_at_end() const override { return hang_timeout() > 0 ? watch_.rules().bound_at_end() : 0; }
  int64_t num_running() const override { return num_seen_running_; }
  bool all_well() const override { return num_seen_running_ == 0 && num_well_ == std::ssize(ranks_); }
  const std::vector<launch::Failure>& failures() const override { return failures_; }
  Sight sight() const override;
  void send(int signal) override;
  void stop(int signal, double patience_seconds) override;
  void finish_output() override {}
  bool may_be_held() const override { return training_.scenario().holds_ranks && group_.has_begun && any_runs(); }
  int64_t hold(double patience_seconds) override;
  void let_go_of_strays() override {}

  int64_t run() const { return group_.run; }
  int64_t round() const { return group_.round; }
  bool any_runs() const;  // and does not wait for the next start
  std::optional<int64_t> running_rank(Random& random) const;
  std::optional<int64_t> waiting_rank() const;  // for others
  void fault(int64_t local_rank, int signal, int exit_code) {
    training_.fail(group_, node_, local_rank, signal, exit_code);
  }
  void end(int64_t local_rank, int signal, int exit_code);
  void lose_peers();
  void begin_exit();
  void end_well();
  void plant(const Hang& hang);  // in the next of these ranks that comes there, or in one of a later start

 private:
  struct Frozen {
    Hang hang;
    Place place;
    Nanoseconds since = 0, still_since = 0;  // and its last sign of progress
    Nanoseconds due_since = 0;               // its time starts anew after a stop
    Nanoseconds stopped_since = 0;           // as far as anybody can tell who looks at it again and again
    HangLimits limits;
    bool keeps_others = false;  // from their end
    std::string named_as;       // by the launcher; empty: not
  };
  struct Rank {
    bool has_ended = false;
    std::optional<Frozen> frozen;
    uint64_t num_hangs = 0;
    std::vector<std::pair<Nanoseconds, Nanoseconds>> held_up;  // by where that piece of work begins: how long
    std::optional<uint64_t> last_progress;                     // when it was frozen last
    Nanoseconds last_still_since = 0, last_due_since = 0;
    std::optional<Nanoseconds> last_stopped_since;
    // What it is known for, as far as `known_work`.
    Nanoseconds known_work = 0;
    std::unique_ptr<Stretches[]> stretches;
  };

  Nanoseconds now() const { return training_.fibers().now(); }
  Rank& rank(int64_t local_rank) { return ranks_[static_cast<size_t>(local_rank)]; }
  const Rank& rank(int64_t local_rank) const { return ranks_[static_cast<size_t>(local_rank)]; }
  double hang_timeout() const { return training_.scenario().options.hang_timeout_seconds; }
  launch::HangWatch make_watch(const launch::Round& round);
  pid_t pid_of(int64_t local_rank) const { return static_cast<pid_t>(1000 * pid_ + local_rank); }
  template <class What>  // if this is there then
  void in_time(Nanoseconds time, const What& what) {
    training_.fibers().at(now() + time, [what, exists = std::weak_ptr<bool>(exists_)] {
      if (!exists.expired()) what();
    });
  }

  // simulated_hangs.cpp
  Place place(int64_t local_rank) const;
  void learn(int64_t local_rank, const Place& place);
  Sight sight_of(int64_t local_rank);
  launch::internal::ProcessState state_of(int64_t local_rank) const;
  Nanoseconds length_of(int64_t local_rank, const Place& piece) const;
  void freeze_at_start();
  std::optional<Nanoseconds> next_place(int64_t local_rank, const Hang& hang) const;
  void come_to(int64_t local_rank, const Hang& hang);
  void hang_at(int64_t local_rank, const Hang& hang);
  void freeze(int64_t local_rank, const Hang& hang, Place place, Nanoseconds still_since);
  void thaw(int64_t local_rank, uint64_t number);
  void thaw_all();
  void wait_in_vain(int64_t local_rank, uint64_t number);
  void note_delay(Nanoseconds meeting, int64_t but_of_rank);
  std::vector<double> stretches_of(int64_t local_rank, const Place& place) const;
  HangLimits limits_of(int64_t local_rank, const Hang& hang, const Place& place) const;
  bool are_all_stopped() const;
  void note_look();
  double counted_since(Nanoseconds time) const;
  bool is_early(const Frozen& frozen) const;
  void check_named(const launch::Hang& hang, std::optional<double> seconds_since_told);
  void check_suspended(const launch::Hang& hang);
  double due(int64_t local_rank, std::optional<double> seconds_since_told) const;
  void check_none_is_missed(std::optional<double> seconds_since_told);
  double look_seconds() const;  // between two
  double slack() const;

  SimulatedTraining& training_;
  Group& group_;
  size_t node_;
  int machine_;
  int64_t first_rank_;
  std::string host_;
  int64_t pid_;
  RanksOwner owner_;
  std::shared_ptr<bool> exists_ = std::make_shared<bool>(true);
  std::vector<Rank> ranks_;
  std::vector<Hang> hangs_at_exit_;
  Nanoseconds joined_ = 0;
  launch::HangWatch watch_;
  Nanoseconds last_look_ = -1, watched_since_ = 0, changed_ = 0;  // who is frozen here
  std::vector<std::pair<Nanoseconds, Nanoseconds>> pauses_;       // of the launcher itself, from one look to the next
  int64_t num_signals_ = 0;                                       // that were passed on
  bool said_suspended_ = false;
  bool are_held_ = false;
  std::vector<launch::Failure> unseen_failures_, failures_;
  int64_t num_seen_running_, num_well_ = 0;
};

}  // namespace espalier::control_plane
