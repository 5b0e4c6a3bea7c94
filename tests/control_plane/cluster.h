// A cluster in one thread: the launchers' own code (launch/run_loop.h, launch/node_meeting.h) on simulated machines, a
// simulated store and a virtual clock, and what must hold of it whatever happens.
//
//   if (const Verdict verdict = simulate(scenario_of(seed)); !verdict.violation.empty()) ...
//
// What must hold:
//   all launchers of a round have the same list of machines, each rank is on it once, and nobody starts a round twice
//   rounds increase, and ranks of two rounds never run at once (but of a machine that the network has left)
//   no round begins once the run has ended
//   all launchers of a round know the same of the failures before it
//   each knows whether ranks ran without it since it took part
//   no machine that was not in the last round that began takes the place of one that was, and comes again in time
//   every launcher ends, within an hour of the last fault
//   exit code 0 says that the training is complete, or that it was told to stop and has saved
//   a run that nothing disturbs takes one start; one whose faults come from outside completes while the machines that
//   nothing befell, and that were there from the beginning, are enough, unless ranks gave up waiting for one that hung
//   before it was to be named
//   starts without gain are bounded by --max-restarts for each machine that is left out or comes anew
//   launchers of the last round return the same code (where no machine may be left out)
//   all launchers that are told to end have ended soon, whatever hangs
//   what simulated_ranks.h lists of ranks that hang, and simulated_watch.h of espalier watch
#pragma once

#include <string>
#include <vector>

#include "tests/control_plane/scenario.h"

namespace espalier::control_plane {

struct Verdict {
  std::string violation;        // empty: all holds
  std::vector<int> exit_codes;  // of each launcher, in the order of their starts; -1: killed
  int64_t num_rounds = 0;
  int64_t num_held = 0;         // ranks that kept their processes, in all starts
  int64_t num_never_begun = 0;  // of rounds whose machines were agreed, one of which left; of the last run
  int64_t num_named = 0;        // ranks that hung
  int64_t num_alarms = 0;       // of espalier watch
  bool is_complete = false;
  double seconds = 0;  // until the last launcher ended
};

// `shows`: writes down what happens, to stderr.
Verdict simulate(const Scenario& scenario, bool shows = false);

}  // namespace espalier::control_plane
