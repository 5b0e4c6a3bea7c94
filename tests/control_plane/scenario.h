// What happens to a simulated cluster, all of it drawn from a seed.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/whereabouts.h"
#include "launch/launch_options.h"
#include "tests/control_plane/simulated_store.h"

namespace espalier::control_plane {

enum class FaultKind {
  kRankKilled,      // from outside
  kRankFails,       // an error of its own
  kLauncherKilled,  // with its ranks
  kMachineBack,     // a launcher is started there again
  kCutOff,          // the network to the machine is gone
  kTerm,            // SIGTERM to a launcher
  kTermToAll,       // as a scheduler does
  kUsr1,
  kRankHangs,
};
std::string to_string(FaultKind kind);

enum class HangKind {
  kStopped,   // SIGSTOP, wherever it is
  kAsleep,    // in work of its own, without processor time
  kDisk,      // the same, on a disk
  kBusy,      // computes
  kExchange,  // sleeps in the middle of an exchange with the others
};
std::string to_string(HangKind kind);

// A rank that does nothing more, or only for a while.
struct Hang {
  HangKind kind = HangKind::kStopped;
  RunPhase phase = RunPhase::kTrain;  // where: when a rank is there next, of this start or another
  double share = 0.5;                 // of what it does there
  double seconds = 0;                 // 0: for ever
  bool is_of_all_ranks = false;       // of the machine
  bool lets_others_end = false;       // in kExit: the others do not wait for it

  bool lasts() const { return seconds == 0; }
};

struct Fault {
  double time = 0;
  FaultKind kind = FaultKind::kRankKilled;
  int machine = 0;
  Hang hang = {};  // of kRankHangs
};

struct Scenario {
  uint64_t seed = 0;
  launch::LaunchOptions options;
  int num_machines = 2;  // as many as start; may differ from the options'
  std::vector<double> starts;
  std::vector<Fault> faults;
  std::set<int> bad_machines;    // whose ranks are killed at each start
  int64_t bad_step = -1;         // at which a rank always fails
  std::set<int64_t> fit_counts;  // numbers of machines that the run can be divided over
  int64_t num_steps = 20;
  double step_seconds = 1, load_seconds = 1;
  int64_t steps_each_save = 4;
  bool goes_on_after_stop = true;
  bool holds_ranks = false;  // those that another's end leaves may wait for the next start
  Network network;
  double watch_patience_seconds = 1800;
  std::map<int, double> burial_seconds;  // by machine: how long its launcher waits for ranks that it has killed
  // Of runs some rank of which may hang:
  bool has_phases = false;  // ranks are seen to start, evaluate and save, too
  int64_t steps_each_evaluation = 1;
  double save_share = 0, evaluation_share = 0;  // of a step's time
  double exchange_timeout_seconds = 180;        // after which ranks that wait for another in vain end

  std::string text() const;
  bool has(FaultKind kind) const;
  double longest_pause() const;  // of a rank that goes on
};

Scenario scenario_of(uint64_t seed);
// The same without ranks that hang.
Scenario without_hangs(uint64_t seed);
// The same with launchers that come later and wait for a place, of names between those of the others.
Scenario with_spares(uint64_t seed);
// The same with ranks that may keep their processes.
Scenario with_held_ranks(uint64_t seed);

}  // namespace espalier::control_plane
