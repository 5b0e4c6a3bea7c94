// The training that a simulated cluster runs: steps in lockstep on all ranks of a round, checkpoints, and ranks that
// end well, fail, are killed, lose their peers or hang.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/node_meeting.h"
#include "tests/control_plane/fibers.h"
#include "tests/control_plane/group_clock.h"
#include "tests/control_plane/random.h"
#include "tests/control_plane/scenario.h"
#include "tests/control_plane/timeline.h"

namespace espalier::control_plane {

class SimulatedRanks;

// The ranks of all machines in one round.
struct Group {
  int64_t run = 0, round = 0;
  std::vector<std::string> machines;   // ids, in the order of their ranks
  std::vector<SimulatedRanks*> parts;  // of those that have started; null: gone
  size_t num_started = 0;
  Timeline timeline;
  GroupClock clock;
  uint64_t plans = 0;               // counts them: what was planned for a time that has changed is void
  bool has_begun = false;           // with the first step
  std::optional<int64_t> end_step;  // done when a rank failed, or all were told to stop
  bool is_told_to_stop = false, has_failed = false, ends_well = false;
  int num_kept_from_end = 0;  // ranks that hang as all end, and for which the others wait

  bool is_alone() const { return machines.size() == 1; }
  bool is_over() const { return has_failed || end_step; }
};

class SimulatedTraining {
 public:
  SimulatedTraining(Fibers& fibers, Random& random, const Scenario& scenario)
      : fibers_(fibers), random_(random), hang_random_(scenario.seed ^ 0x4A46ULL), scenario_(scenario) {}

  Group& group(const launch::Round& round);
  void begin_new_run() { ++run_, has_copies_ = false; }  // the rendezvous store is another: rounds count from 0
  int64_t run() const { return run_; }
  const std::map<std::pair<int64_t, int64_t>, Group>& groups() const { return groups_; }
  void join(Group& group, SimulatedRanks* part, size_t node);
  void leave(Group& group, size_t node);
  int64_t steps_done(const Group& group) const;
  void stop_well(Group& group);  // a rank was sent SIGTERM
  void fail(Group& group, size_t node, int64_t local_rank, int signal, int exit_code);
  void forget_memory() { in_memory_ = on_disk_, has_copies_ = false; }
  bool has_copies() const { return has_copies_; }  // of the state, in the launchers' memory

  // Hangs that wait for ranks on that machine.
  std::vector<Hang>& hangs_to_come(int machine) { return hangs_to_come_[machine]; }
  void freeze(Group& group, int64_t rank, Nanoseconds meeting);
  void thaw(Group& group, int64_t rank);
  void end_together(Group& group);  // all that nothing keeps from it
  // The others give up, unless none of them waits: false.
  bool time_out(Group& group);

  // What the ranks record: "start", "stop", "end"; and the last step.
  void set_recorder(std::function<void(const std::string&)> record) { record_ = std::move(record); }
  int64_t recorded_step() const;
  int64_t on_disk() const { return on_disk_; }
  bool is_complete() const { return is_complete_; }
  bool has_stopped_well() const { return has_stopped_well_; }
  int64_t num_gains() const { return num_gains_; }
  void note_held(int64_t count) { num_held_ += count; }
  int64_t num_held() const { return num_held_; }  // ranks, in all starts
  // Of a rank that was to hang for ever, and was let go on.
  void note_pause(double seconds) { longest_pause_ = std::max(longest_pause_, seconds); }
  double longest_pause() const { return longest_pause_; }
  // Ranks gave up waiting for one that hung, and nobody was to have named it by then.
  void note_early_time_out() { has_timed_out_early_ = true; }
  bool has_timed_out_early() const { return has_timed_out_early_; }
  void note_named() { ++num_named_; }
  int64_t num_named() const { return num_named_; }  // as they hung
  double start_of_time() const { return 1.7e9; }    // seconds since 1970
  double seconds_since_1970() const { return start_of_time() + static_cast<double>(fibers_.now()) * 1e-9; }
  Fibers& fibers() { return fibers_; }
  Random& random() { return random_; }
  Random& hang_random() { return hang_random_; }  // its own: what hangs changes nothing of the rest
  const Scenario& scenario() const { return scenario_; }

 private:
  void load(Group& group);
  void begin(Group& group);
  void plan_steps(Group& group);
  void stop_soon(Group& group);
  void end_well(Group& group);
  template <class What>
  void at_work(Group& group, Nanoseconds work, const What& what);

  Fibers& fibers_;
  Random& random_;
  Random hang_random_;
  const Scenario& scenario_;
  std::function<void(const std::string&)> record_;
  std::map<std::pair<int64_t, int64_t>, Group> groups_;  // by run and round
  std::map<int, std::vector<Hang>> hangs_to_come_;       // by machine
  int64_t run_ = 0;
  int64_t on_disk_ = 0, in_memory_ = 0, furthest_ = 0, num_gains_ = 0, num_held_ = 0, num_named_ = 0;
  double longest_pause_ = 0;
  bool is_complete_ = false, has_stopped_well_ = false, has_copies_ = false, has_timed_out_early_ = false;
};

}  // namespace espalier::control_plane
