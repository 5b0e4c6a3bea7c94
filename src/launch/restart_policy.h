// Whether, when and from what the ranks start again after a failure: nothing is tried again blindly.
//
// A failure from outside (a rank was killed or hung, its machine or a peer is gone) does not put its state in doubt:
// the ranks go on from the copies in memory. A rank that ended by an error of its own, or by a signal of its own doing,
// may have spoilt its state before: they go back to the checkpoint. Not before it has trained, as where a machine in
// another's place has too little memory or lacks a file: only once the same comes again.
// An error of its own that comes again at the same step ends the run, before training when it comes the third time:
// data, options or code are its cause, and another try would end there too. What comes from outside to the same rank at
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
  std::vector<Failure> alike;  // where the run ends because they are: all of them, the last one at the end
};

class RestartPolicy {
 public:
  explicit RestartPolicy(int64_t max_restarts) : max_restarts_(max_restarts) {}

  // `cause`: of the failure of one start. Every launcher of a run decides alike.
  RestartDecision decide(const Failure& cause);

 private:
  int64_t max_restarts_;
  int64_t furthest_step_ = -1, num_without_gain_ = 0, num_restarts_ = 0;  // since a step was gained
  std::vector<Failure> alike_;  // the last failures, as far as they are the same fault
};

bool is_from_outside(const Failure& failure);

// "phase train, step 17"; empty where it is not known.
std::string place_of(const Failure& failure);

// One page for whoever finds the run ended: what happened, how often, what the failures have in common and what to do.
// `run_folder` may be empty.
std::string cause_page(const std::vector<Failure>& alike, const std::string& run_folder);

}  // namespace espalier::launch
