// What a launcher decides: when to start the ranks with the other machines, and whether to start them again, to go on
// without a machine or with more, or to end, and with which exit code.
//
// All that it decides over comes through interfaces (Surroundings, NodeMeeting's store, LaunchSite, Ranks), so that
// whole clusters of launchers run in one process in tests, on a virtual clock. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/launch_options.h"
#include "launch/launcher.h"
#include "launch/node_meeting.h"
#include "launch/ranks.h"
#include "launch/restart_policy.h"
#include "launch/stop_orders.h"
#include "launch/surroundings.h"

namespace espalier::launch {

class RunLoop {
 public:
  RunLoop(const LaunchOptions& options, const RankProgram& program, Surroundings& surroundings, NodeMeeting& meeting,
          LaunchSite& site)
      : options_(options),
        program_(program),
        surroundings_(surroundings),
        meeting_(meeting),
        site_(site),
        orders_(options, program, surroundings, meeting, site),
        restarts_(options.max_restarts) {}

  int run();  // the launcher's exit code

 private:
  using Time = Surroundings::Time;

  std::optional<Round> join();
  bool tells_of_lost_store() const;
  bool is_told_to_end();
  int end_without_round();
  void say_start(const Round& round) const;
  std::optional<int> run_round(const Round& round);
  RoundOutcome watch(const Round& round, Ranks& ranks);
  RoundOutcome watch_until_over(const Round& round, Ranks& ranks);
  void take_in_waiting(Ranks& ranks);
  void stop(Ranks& ranks);
  void say_failed();
  void say_stopped(const Ranks& ranks);
  void reap_together(Ranks& ranks);
  bool hold(Ranks& ranks);
  int end_by_signal(const Round& round, const Ranks& ranks);
  int end_as_told(const Round& round, const Ranks& ranks, const RoundEnd& end);
  int end_without_cause(const Round& round, const Ranks& ranks, const RoundEnd& end);
  int end_with(const Round& round, const Ranks& ranks, const RoundEnd& end);
  int end_without_store(const Ranks& ranks);
  std::optional<int> end_or_restart(const Round& round, const Ranks& ranks);
  std::optional<int> start_with_others();
  void hand_on_history();
  bool shrinks(const Round& round, const Failure& cause) const;
  void tell_left_out(const Failure& cause, const std::string& run_folder, const std::vector<Failure>& failures);
  void stay_as_host();
  void wait_before_restart(double seconds);
  int report(std::vector<Failure> failures);

  const LaunchOptions& options_;
  const RankProgram& program_;
  Surroundings& surroundings_;
  NodeMeeting& meeting_;
  LaunchSite& site_;
  StopOrders orders_;
  RestartPolicy restarts_;       // as all launchers of the round know it
  std::unique_ptr<Ranks> held_;  // for the next round; null: none
  int64_t node_ = -1;            // this machine's number in the last round; -1: there was none
  std::string run_folder_;       // after a failure
  bool is_regroup_asked_ = false, is_left_out_ = false;
  bool may_go_on_ = false;             // ranks that are held
  int64_t num_held_ = 0;               // here, after this round
  std::optional<int64_t> first_step_;  // of this round
  Time last_look_;                     // for machines that wait
};

}  // namespace espalier::launch
