// What happens to a simulated cluster, all of it drawn from a seed.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

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
};
std::string to_string(FaultKind kind);

struct Fault {
  double time = 0;
  FaultKind kind = FaultKind::kRankKilled;
  int machine = 0;
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

  std::string text() const;
  bool has(FaultKind kind) const;
};

Scenario scenario_of(uint64_t seed);
// The same with launchers that come later and wait for a place, of names between those of the others.
Scenario with_spares(uint64_t seed);
// The same with ranks that may keep their processes.
Scenario with_held_ranks(uint64_t seed);

}  // namespace espalier::control_plane
