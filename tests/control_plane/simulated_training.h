// The training that a simulated cluster runs: steps in lockstep on all ranks of a round, checkpoints, and ranks that
// end well, fail, are killed or lose their peers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/ranks.h"
#include "tests/control_plane/fibers.h"
#include "tests/control_plane/random.h"
#include "tests/control_plane/scenario.h"

namespace espalier::control_plane {

class SimulatedRanks;

// The ranks of all machines in one round.
struct Group {
  int64_t run = 0, round = 0;
  std::vector<std::string> machines;   // ids, in the order of their ranks
  std::vector<SimulatedRanks*> parts;  // of those that have started; null: gone
  size_t num_started = 0;
  int64_t first_step = 0;            // that have been done before
  std::optional<Nanoseconds> begin;  // of the first step
  std::optional<int64_t> end_step;   // done when a rank failed, or all were told to stop
  bool is_told_to_stop = false, has_failed = false;
};

class SimulatedTraining {
 public:
  SimulatedTraining(Fibers& fibers, Random& random, const Scenario& scenario)
      : fibers_(fibers), random_(random), scenario_(scenario) {}

  Group& group(const launch::Round& round);
  void begin_new_run() { ++run_; }  // the rendezvous store is another: rounds count from 0
  int64_t run() const { return run_; }
  const std::map<std::pair<int64_t, int64_t>, Group>& groups() const { return groups_; }
  void join(Group& group, SimulatedRanks* part, size_t node);
  void leave(Group& group, size_t node);
  int64_t steps_done(const Group& group) const;
  void stop_well(Group& group);  // a rank was sent SIGTERM
  void fail(Group& group, size_t node, int64_t local_rank, int signal, int exit_code);
  void forget_memory() { in_memory_ = on_disk_; }
  bool is_complete() const { return is_complete_; }
  bool has_stopped_well() const { return has_stopped_well_; }
  int64_t num_gains() const { return num_gains_; }
  void note_held(int64_t count) { num_held_ += count; }
  int64_t num_held() const { return num_held_; }  // ranks, in all starts
  double start_of_time() const { return 1.7e9; }  // seconds since 1970
  double seconds_since_1970() const { return start_of_time() + static_cast<double>(fibers_.now()) * 1e-9; }
  Fibers& fibers() { return fibers_; }
  Random& random() { return random_; }
  const Scenario& scenario() const { return scenario_; }

 private:
  void begin(Group& group);
  void end_well(Group& group);

  Fibers& fibers_;
  Random& random_;
  const Scenario& scenario_;
  std::map<std::pair<int64_t, int64_t>, Group> groups_;  // by run and round
  int64_t run_ = 0;
  int64_t on_disk_ = 0, in_memory_ = 0, furthest_ = 0, num_gains_ = 0, num_held_ = 0;
  bool is_complete_ = false, has_stopped_well_ = false;
};

// Of one machine, as its launcher sees them.
class SimulatedRanks : public launch::Ranks {
 public:
  SimulatedRanks(SimulatedTraining& training, const launch::Round& round, std::function<void()> on_end);
  ~SimulatedRanks() override { training_.leave(group_, node_); }

  void reap() override;
  void end_hung(const std::optional<launch::ToldToEnd>&) override {}
  double bound_at_end() const override { return 0; }
  int64_t num_running() const override { return num_seen_running_; }
  bool all_well() const override { return num_seen_running_ == 0 && num_well_ == std::ssize(has_ended_); }
  const std::vector<launch::Failure>& failures() const override { return failures_; }
  Sight sight() const override;
  void send(int signal) override;
  void stop(int signal, double patience_seconds) override;
  void finish_output() override {}
  bool may_be_held() const override { return training_.scenario().holds_ranks && group_.begin && any_runs(); }
  int64_t hold(double patience_seconds) override;
  void let_go_of_strays() override {}

  int64_t run() const { return group_.run; }
  int64_t round() const { return group_.round; }
  bool any_runs() const;  // and does not wait for the next start
  std::optional<int64_t> running_rank(Random& random) const;
  void fault(int64_t local_rank, int signal, int exit_code) {
    training_.fail(group_, node_, local_rank, signal, exit_code);
  }
  void end(int64_t local_rank, int signal, int exit_code);
  void lose_peers();
  void end_well();

 private:
  SimulatedTraining& training_;
  Group& group_;
  size_t node_;
  int64_t first_rank_;
  std::string host_;
  int64_t pid_;
  std::function<void()> on_end_;
  std::shared_ptr<bool> exists_ = std::make_shared<bool>(true);
  std::vector<bool> has_ended_;
  bool are_held_ = false;
  std::vector<launch::Failure> unseen_failures_, failures_;
  int64_t num_seen_running_, num_well_ = 0;
};

}  // namespace espalier::control_plane
