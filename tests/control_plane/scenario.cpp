#include "tests/control_plane/scenario.h"

#include <algorithm>

#include "base/format.h"

namespace espalier::control_plane {

std::string to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::kRankKilled: return "a rank is killed";
    case FaultKind::kRankFails: return "a rank fails";
    case FaultKind::kLauncherKilled: return "the launcher is killed";
    case FaultKind::kMachineBack: return "the machine is back";
    case FaultKind::kCutOff: return "the machine is cut off";
    case FaultKind::kTerm: return "SIGTERM";
    case FaultKind::kTermToAll: return "SIGTERM to all";
    case FaultKind::kUsr1: return "SIGUSR1";
    case FaultKind::kRankHangs: return "a rank hangs";
  }
  return "";
}

std::string to_string(HangKind kind) {
  switch (kind) {
    case HangKind::kStopped: return "stopped";
    case HangKind::kAsleep: return "asleep";
    case HangKind::kDisk: return "waits for a disk";
    case HangKind::kBusy: return "computes";
    case HangKind::kExchange: return "asleep in an exchange";
  }
  return "";
}

namespace {

std::string in_words(const Hang& hang) {
  return concat(" (", to_string(hang.kind), " in ", to_string(hang.phase), " at ", hang.share,
                hang.lasts() ? ", for ever" : concat(", for ", hang.seconds, " s"),
                hang.is_of_all_ranks ? ", all ranks there" : "", hang.lets_others_end ? ", the others end" : "", ")");
}

}  // namespace

std::string Scenario::text() const {
  std::string text =
      concat("seed ", seed, ": ", num_machines, " machines x ", options.num_local_ranks, ", --nnodes ",
             options.min_nodes, ":", options.max_nodes, ", --max-restarts ", options.max_restarts, ", ", num_steps,
             " steps of ", step_seconds, " s, last call ", options.last_call_seconds, " s\n  starts at");
  for (const double start : starts) text += concat(" ", start);
  for (const int machine : bad_machines) text += concat("\n  ranks on machine ", machine, " are always killed");
  for (const auto& [machine, seconds] : burial_seconds)
    text += concat("\n  the launcher on machine ", machine, " waits for ranks that it kills for ", seconds, " s");
  if (bad_step >= 0) text += concat("\n  step ", bad_step, " always fails");
  text += "\n  fits machines:";
  for (const int64_t count : fit_counts) text += concat(" ", count);
  for (const Fault& fault : faults)
    text += concat("\n  at ", fault.time, " s machine ", fault.machine, ": ", to_string(fault.kind),
                   fault.kind == FaultKind::kRankHangs ? in_words(fault.hang) : "");
  if (has_phases)
    text += concat("\n  --hang-timeout ", options.hang_timeout_seconds, ", exchanges wait for ",
                   exchange_timeout_seconds, " s, steps evaluate each ", steps_each_evaluation, " (", evaluation_share,
                   ") and save each ", steps_each_save, " (", save_share, ")");
  return text;
}

bool Scenario::has(FaultKind kind) const {
  return std::any_of(faults.begin(), faults.end(), [&](const Fault& fault) { return fault.kind == kind; });
}

double Scenario::longest_pause() const {
  double longest = 0;
  for (const Fault& fault : faults)
    if (fault.kind == FaultKind::kRankHangs) longest = std::max(longest, fault.hang.seconds);
  return longest;
}

Scenario without_hangs(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.num_machines = static_cast<int>(2 + random.up_to(random.chance(0.2) ? 6 : 2));
  launch::LaunchOptions& options = scenario.options;
  options.rendezvous = random.chance(0.8) ? launch::Rendezvous::kC10d : launch::Rendezvous::kStatic;
  options.max_nodes = scenario.num_machines;
  options.min_nodes = scenario.num_machines;
  if (random.chance(0.7)) {
    options.rendezvous = launch::Rendezvous::kC10d;
    options.min_nodes = 1 + random.up_to(options.max_nodes - 1);
    if (random.chance(0.2)) ++scenario.num_machines;  // a spare one
  }
  options.num_local_ranks = 1 + random.up_to(3);
  options.max_restarts = random.up_to(4);
  options.store_host = "machine0";
  options.run_id = "simulated";
  options.monitor_interval_seconds = random.chance(0.2) ? 0.1 : 0.5;
  options.join_timeout_seconds = 120;
  options.last_call_seconds = random.chance(0.3) ? 10 : random.between(0, 3);
  if (random.chance(0.3)) options.shutdown_timeout_seconds = random.between(1, 20);
  for (int machine = 0; machine < scenario.num_machines; ++machine)
    scenario.starts.push_back(random.chance(0.2) ? random.between(0, 40) : random.between(0, 2));
  scenario.num_steps = 1 + random.up_to(20);
  scenario.step_seconds = random.between(0.2, 2);
  scenario.load_seconds = random.between(0, 2);
  scenario.steps_each_save = 1 + random.up_to(5);
  scenario.goes_on_after_stop = random.chance(0.8);
  for (int64_t count = options.min_nodes; count <= options.max_nodes; ++count)
    if (count == options.min_nodes || random.chance(0.7)) scenario.fit_counts.insert(count);
  if (options.min_nodes == options.max_nodes) scenario.fit_counts = {options.max_nodes};
  if (random.chance(0.3)) scenario.network.late = 0.02, scenario.network.latest = random.between(0.01, 5);
  if (random.chance(0.1)) scenario.bad_step = random.up_to(scenario.num_steps);
  // Most runs have few kinds of faults, so that what follows from one is seen.
  const bool only_from_outside = random.chance(0.5);
  if (random.chance(0.2)) scenario.bad_machines.insert(static_cast<int>(random.up_to(scenario.num_machines - 1)));
  const int64_t num_faults = random.chance(0.05) ? 0 : 1 + random.up_to(random.chance(0.2) ? 10 : 3);
  for (int64_t number = 0; number < num_faults; ++number) {
    Fault fault;
    fault.time = random.between(0, random.chance(0.5) ? 8 : 60);
    fault.machine = static_cast<int>(random.up_to(scenario.num_machines - 1));
    const double kind = random.uniform();
    fault.kind = kind < 0.35                        ? FaultKind::kRankKilled
                 : kind < 0.65 || only_from_outside ? FaultKind::kLauncherKilled
                 : kind < 0.8                       ? FaultKind::kRankFails
                 : kind < 0.85                      ? FaultKind::kCutOff
                 : kind < 0.92                      ? FaultKind::kTerm
                 : kind < 0.97                      ? FaultKind::kTermToAll
                                                    : FaultKind::kUsr1;
    // The end of the store's host ends the run: it is tried, but not most of the time.
    if (fault.kind == FaultKind::kLauncherKilled && fault.machine == 0 && random.chance(0.8)) fault.machine = 1;
    scenario.faults.push_back(fault);
    if (fault.kind == FaultKind::kLauncherKilled && random.chance(0.5))
      scenario.faults.push_back({fault.time + random.between(0.01, 20), FaultKind::kMachineBack, fault.machine});
  }
  std::stable_sort(scenario.faults.begin(), scenario.faults.end(),
                   [](const Fault& a, const Fault& b) { return a.time < b.time; });
  return scenario;
}

namespace {

// For how long the rules of launch/hang_watch.h bear it at least.
double longest_healthy(HangKind kind, RunPhase phase) {
  const bool works = phase == RunPhase::kTrain || phase == RunPhase::kEvaluate;
  switch (kind) {
    case HangKind::kStopped: return 4.5;
    case HangKind::kAsleep: return works ? 4.5 : 14;
    case HangKind::kDisk:
    case HangKind::kBusy: return 55;
    case HangKind::kExchange: return 28;
  }
  return 0;
}

Hang draw_hang(Random& random) {
  Hang hang;
  const double kind = random.uniform(), phase = random.uniform();
  hang.kind = kind < 0.45   ? HangKind::kStopped
              : kind < 0.65 ? HangKind::kAsleep
              : kind < 0.75 ? HangKind::kDisk
              : kind < 0.9  ? HangKind::kBusy
                            : HangKind::kExchange;
  hang.phase = phase < 0.4    ? RunPhase::kTrain
               : phase < 0.52 ? RunPhase::kStart
               : phase < 0.64 ? RunPhase::kLoad
               : phase < 0.76 ? RunPhase::kEvaluate
               : phase < 0.88 ? RunPhase::kSave
                              : RunPhase::kExit;
  const bool has_exchange = hang.phase != RunPhase::kStart && hang.phase != RunPhase::kExit;
  if (hang.kind == HangKind::kExchange && !has_exchange) hang.kind = HangKind::kStopped;
  hang.share = random.uniform();
  hang.lets_others_end = random.chance(0.5);
  if (random.chance(0.35)) hang.seconds = random.between(0.1, longest_healthy(hang.kind, hang.phase));
  hang.is_of_all_ranks = hang.kind == HangKind::kStopped && random.chance(0.15);
  return hang;
}

// What happens beside it, while a rank hangs or goes on after that.
Fault draw_company(Random& random, const Fault& fault, int num_machines) {
  Fault company;
  company.time = fault.time + random.between(0, random.chance(0.5) ? 10 : 70);
  company.machine = random.chance(0.4) ? fault.machine : static_cast<int>(random.up_to(num_machines - 1));
  const double kind = random.uniform();
  company.kind = kind < 0.3    ? FaultKind::kLauncherKilled
                 : kind < 0.5  ? FaultKind::kTermToAll
                 : kind < 0.6  ? FaultKind::kTerm
                 : kind < 0.7  ? FaultKind::kUsr1
                 : kind < 0.75 ? FaultKind::kCutOff
                 : kind < 0.85 ? FaultKind::kRankFails
                               : FaultKind::kRankKilled;
  return company;
}

void add_hangs(Scenario& scenario, Random random) {
  scenario.has_phases = true;
  if (random.chance(0.5)) scenario.watch_patience_seconds = random.between(60, 600);
  scenario.save_share = random.chance(0.7) ? random.between(0.05, 0.3) : 0;
  scenario.evaluation_share = random.chance(0.7) ? random.between(0.05, 0.5) : 0;
  scenario.steps_each_evaluation = 1 + random.up_to(4);
  scenario.exchange_timeout_seconds = random.chance(0.2) ? 61 : 180;
  if (random.chance(0.15)) scenario.options.hang_timeout_seconds = random.chance(0.3) ? 0 : random.between(5, 15);
  const int64_t count = 1 + (random.chance(0.3) ? random.up_to(2) : 0);
  for (int64_t number = 0; number < count; ++number) {
    Fault fault;
    fault.time = random.between(0, random.chance(0.7) ? 8 : 40);
    fault.kind = FaultKind::kRankHangs;
    fault.machine = static_cast<int>(random.up_to(scenario.num_machines - 1));
    fault.hang = draw_hang(random);
    scenario.faults.push_back(fault);
    if (random.chance(0.3)) scenario.faults.push_back(draw_company(random, fault, scenario.num_machines));
  }
  std::stable_sort(scenario.faults.begin(), scenario.faults.end(),
                   [](const Fault& a, const Fault& b) { return a.time < b.time; });
}

}  // namespace

// Of half of the seeds some rank hangs, of half of those with nothing else.
Scenario scenario_of(uint64_t seed) {
  Scenario scenario = without_hangs(seed);
  Random random(seed ^ 0x4A4E6ULL);
  if (!random.chance(0.5)) return scenario;
  if (random.chance(0.5)) scenario.faults.clear(), scenario.bad_machines.clear(), scenario.bad_step = -1;
  add_hangs(scenario, random);
  return scenario;
}

Scenario with_spares(uint64_t seed) {
  Scenario scenario = scenario_of(seed);
  Random random(seed ^ 0x59A4E5ULL);
  scenario.options.rendezvous = launch::Rendezvous::kC10d;
  const int64_t count = 1 + random.up_to(1);
  for (int64_t number = 0; number < count; ++number, ++scenario.num_machines) {
    scenario.starts.push_back(random.between(0, 2));
    scenario.starts[static_cast<size_t>(1 + random.up_to(scenario.num_machines - 1))] = random.between(3, 20);
  }
  return scenario;
}

Scenario with_held_ranks(uint64_t seed) {
  Scenario scenario = scenario_of(seed);
  scenario.holds_ranks = true;
  return scenario;
}

}  // namespace espalier::control_plane
