// Whether, when and from what the ranks start again after a failure: nothing is tried again blindly.
//
// A failure from outside (a rank was killed or hung, its machine or a peer is gone) does not put its state in doubt:
// the ranks go on from the copies in memory. A rank that ended by an error of its own, or by a signal of its own doing,
// may have spoilt its state before: they go back to the checkpoint. Not before it has trained, as where a machine in
// another's place has too little memory or lacks a file: only once the same comes again.
// An error of its own that comes again at the same step ends the run, before training when it comes the third time:
// data, options or code are its cause, and another try would end there too. One whose folder another job holds, or that
// may not save there, ends at once where it is the first thing that happens: after a failure the holder may be what is
// left of the start before. What comes from outside to the same rank at
// the same step is tried kMostAlike times, and after failures without a step gained each start waits longer (1, 2, 4,
// ... 60 s). The bound is of restarts since a step was gained: a run of months may fail more often than that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/failure.h"

namespace espalier::launch {

inline constexpr size_t kMostAlike = 5;

struct RestartDecision {
  bool starts_again = false;
  int64_t restart = 0;  // if so: its number since a step was gained
  bool trusts_memory = false;
  double wait_seconds = 0;
  bool is_refused = false;     // its folder is in use, or not to be written: nothing is tried again
  std::vector<Failure> alike;  // where the run ends because they are: all of them, the last one at the end
};

class RestartPolicy {
 public:
  // `history`: what another knew, by history(); empty: nothing has happened.
  explicit RestartPolicy(int64_t max_restarts, const std::string& history = "");

  // `cause`: of the failure of one start. Launchers that know the same history decide alike.
  RestartDecision decide(const Failure& cause);
  // The ranks have got further and saved, and are to start again with other machines.
  void gain() {
    num_without_gain_ = num_restarts_ = 0;
    has_been_tried_ = true;
  }
  // The last restart's number since a step was gained; 0: there was none since.
  int64_t restart() const { return num_restarts_; }
  // For another launcher. Short: without what failures said, which has been told where they came.
  std::string history() const;

 private:
  int64_t max_restarts_;
  int64_t furthest_step_ = -1, num_without_gain_ = 0, num_restarts_ = 0;  // since a step was gained
  bool has_been_tried_ = false;                                           // there was a start before
  std::vector<Failure> alike_;  // the last failures, as far as they are the same fault at a place that is known
};

bool is_from_outside(const Failure& failure);

// "phase train, step 17"; empty where it is not known.
std::string place_of(const Failure& failure);

// One page for whoever finds the run ended: what happened, how often, what the failures have in common and what to do.
// `run_folder` may be empty.
std::string cause_page(const std::vector<Failure>& alike, const std::string& run_folder);

}  // namespace espalier::launch
