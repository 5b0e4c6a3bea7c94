// Clusters of launchers on a virtual clock, each run drawn from a seed (cluster.h says what has to hold).
//
//   ESPALIER_CONTROL_PLANE_SEEDS=FIRST:COUNT build/bin/espalier_control_plane_test --gtest_filter=*Seeds
// runs others than the suite's; of COUNT 1 every event is written to stderr.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "tests/control_plane/cluster.h"
#include "tests/support/long_version.h"

namespace espalier::control_plane {
namespace {

class ControlPlane : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kQuiet); }
  void TearDown() override { set_log_level(before_); }

 private:
  const LogLevel before_ = log_level();
};

struct Counts {
  int64_t num_held = 0, num_named = 0, num_alarms = 0;
};

Counts expect_holds_for_all_seeds(Scenario (*scenario_of)(uint64_t seed)) {
  Counts counts;
  uint64_t first = 0, count = 300;
  if (const char* seeds = std::getenv("ESPALIER_CONTROL_PLANE_SEEDS")) {
    const std::string text = seeds;
    first = std::stoull(text);
    count = std::stoull(text.substr(text.find(':') + 1));
  }
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Scenario scenario = scenario_of(seed);
    const Verdict verdict = simulate(scenario, count == 1);
    EXPECT_EQ(verdict.violation, "") << scenario.text();
    counts.num_held += verdict.num_held;
    counts.num_named += verdict.num_named;
    counts.num_alarms += verdict.num_alarms;
  }
  std::printf("%lld seeds: %lld hanging ranks named, %lld alarms of espalier watch, %lld ranks kept their processes\n",
              static_cast<long long>(count), static_cast<long long>(counts.num_named),
              static_cast<long long>(counts.num_alarms), static_cast<long long>(counts.num_held));
  return counts;
}

TEST_F(ControlPlane, HoldsForAllSeeds) {
  const Counts counts = expect_holds_for_all_seeds(scenario_of);
  if (std::getenv("ESPALIER_CONTROL_PLANE_SEEDS") != nullptr) return;
  EXPECT_GT(counts.num_named, 15);
  EXPECT_GT(counts.num_alarms, 20);
}

TEST_F(ControlPlane, WithSpareMachinesItHoldsForAllSeeds) { expect_holds_for_all_seeds(with_spares); }

TEST_F(ControlPlane, WithRanksThatKeepTheirProcessesItHoldsForAllSeeds) {
  EXPECT_GT(expect_holds_for_all_seeds(with_held_ranks).num_held, 0);
}

TEST_F(ControlPlane, ASeedRepeatsExactly) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Verdict once = simulate(scenario_of(seed)), again = simulate(scenario_of(seed));
    EXPECT_EQ(once.exit_codes, again.exit_codes) << seed;
    EXPECT_EQ(once.seconds, again.seconds) << seed;
  }
}

// 1,250 machines of 8 ranks, of which one is killed and one is stopped, and a launcher with its machine: the others go
// on without it.
TEST_F(ControlPlane, TenThousandRanksLoseTwoAndAMachine) {
  if (!test::long_version()) GTEST_SKIP() << "takes a minute: scripts/test --all";
  Scenario scenario;
  scenario.num_machines = 1250;
  scenario.options.rendezvous = launch::Rendezvous::kC10d;
  scenario.options.min_nodes = 1200, scenario.options.max_nodes = 1250;
  scenario.options.num_local_ranks = 8;
  scenario.options.max_restarts = 3;
  scenario.options.store_host = "machine0";
  scenario.options.run_id = "simulated";
  scenario.options.monitor_interval_seconds = 0.5;
  scenario.options.join_timeout_seconds = 600;
  scenario.options.last_call_seconds = 30;
  for (int machine = 0; machine < scenario.num_machines; ++machine) scenario.starts.push_back(0.013 * (machine % 100));
  for (int64_t count = 1200; count <= 1250; ++count) scenario.fit_counts.insert(count);
  scenario.has_phases = true;
  scenario.faults = {{40, FaultKind::kRankKilled, 700},
                     {90, FaultKind::kRankHangs, 300, {.kind = HangKind::kStopped}},
                     {140, FaultKind::kLauncherKilled, 1249}};
  scenario.num_steps = 100;
  const Verdict verdict = simulate(scenario);
  EXPECT_EQ(verdict.violation, "");
  EXPECT_TRUE(verdict.is_complete);
  EXPECT_EQ(verdict.num_rounds, 4);
  EXPECT_EQ(verdict.num_named, 1);
  EXPECT_EQ(verdict.num_alarms, 0);
  EXPECT_LT(verdict.seconds, 500);
}

// Machines that start one after another within a second, with ten steps of one.
Scenario machines(int count, int64_t least, int64_t most) {
  Scenario scenario;
  scenario.num_machines = count;
  scenario.options.rendezvous = launch::Rendezvous::kC10d;
  scenario.options.min_nodes = least, scenario.options.max_nodes = most;
  scenario.options.num_local_ranks = 2;
  scenario.options.store_host = "machine0";
  scenario.options.run_id = "simulated";
  scenario.options.monitor_interval_seconds = 0.5;
  scenario.options.join_timeout_seconds = 120;
  scenario.options.last_call_seconds = 2;
  for (int machine = 0; machine < count; ++machine) scenario.starts.push_back(0.2 * machine);
  for (int64_t fitting = least; fitting <= most; ++fitting) scenario.fit_counts.insert(fitting);
  scenario.num_steps = 10;
  return scenario;
}

// The run is at its least, one of its machines loses its ranks always, and another waits, as the run cannot be divided
// over it as well.
TEST_F(ControlPlane, AMachineThatWaitsTakesThePlaceOfOneThatIsLost) {
  Scenario scenario = machines(4, 3, 4);
  scenario.fit_counts = {3};
  scenario.bad_machines = {1};
  const Verdict verdict = simulate(scenario);
  EXPECT_EQ(verdict.violation, "");
  EXPECT_TRUE(verdict.is_complete);
  EXPECT_EQ(verdict.num_rounds, 2);
  EXPECT_EQ(verdict.exit_codes, (std::vector<int>{0, 137, 0, 0}));
  EXPECT_EQ(simulate(without_hangs(121529)).violation, "");
}

// Three of four are needed, and the second by name comes late: it waits. A rank of the last is killed, and what its
// launcher holds of the ranks' state is wanted, however late its word comes that it is there again.
TEST_F(ControlPlane, AMachineThatWaitsTakesNobodysPlaceWhoComesAgain) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Scenario scenario = machines(4, 3, 3);
    scenario.seed = seed;
    scenario.starts[1] = 8;
    scenario.num_steps = 20;
    scenario.options.max_restarts = 1;
    scenario.options.last_call_seconds = 30;
    scenario.network.late = 0.3, scenario.network.latest = 1;
    scenario.faults = {{14, FaultKind::kRankKilled, 3}};
    const Verdict verdict = simulate(scenario);
    EXPECT_EQ(verdict.violation, "") << seed;
    EXPECT_TRUE(verdict.is_complete);
    EXPECT_EQ(verdict.num_rounds, 2);
  }
}

// Eight of ten are needed, and the second and the third by name come late: they wait. A rank is killed, a message of
// the fourth is late, and the next start is to have the second in its place. That one dies before the start begins, and
// the third is to have nobody's place for it; nor does who was on that list take its copies of the state for old.
TEST_F(ControlPlane, AStartThatNeverBeganCostsNobodyItsPlace) {
  int num_never_begun = 0;
  for (double time = 22; time < 23.4; time += 0.04) {
    Scenario scenario = machines(10, 8, 8);
    scenario.seed = 22;
    scenario.starts[1] = 8, scenario.starts[2] = 8.5;
    scenario.num_steps = 20;
    scenario.options.max_restarts = 3;
    scenario.options.shutdown_timeout_seconds = 3;
    scenario.options.last_call_seconds = 1;
    scenario.network.late = 0.02, scenario.network.latest = 3;
    scenario.faults = {{14, FaultKind::kRankKilled, 0}, {time, FaultKind::kLauncherKilled, 1}};
    const Verdict verdict = simulate(scenario);
    EXPECT_EQ(verdict.violation, "") << "killed at " << time;
    num_never_begun += verdict.num_never_begun > 0 ? 1 : 0;
  }
  EXPECT_GT(num_never_begun, 10);
}

// A machine always loses its ranks, messages are late, and who comes 0.2 s after the others misses a start: what has
// failed meanwhile counts for all. With three restarts at most three starts fail before the first step and four at it;
// then the others go on without that machine.
TEST_F(ControlPlane, LaunchersThatMissStartsCountRestartsAsTheOthers) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Scenario scenario = machines(4, 1, 4);
    scenario.seed = seed;
    scenario.options.max_restarts = 3;
    scenario.options.shutdown_timeout_seconds = 3;
    scenario.options.last_call_seconds = 0.2;
    scenario.network.late = 0.2, scenario.network.latest = 1;
    scenario.bad_machines = {1};
    scenario.num_steps = 3, scenario.step_seconds = 30;
    scenario.goes_on_after_stop = false;
    const Verdict verdict = simulate(scenario);
    EXPECT_EQ(verdict.violation, "") << seed;
    EXPECT_TRUE(verdict.is_complete) << seed;
    EXPECT_LE(verdict.num_rounds, 3 + 4 + 1) << seed;
  }
  EXPECT_EQ(simulate(without_hangs(272448)).violation, "");
}

// The first machine always loses its ranks, and the other waits. Messages are late, so that a start may fail for good
// before that one has heard of the start: it takes the place all the same. (Four of these seeds do so.)
TEST_F(ControlPlane, AMachineThatWaitsIsCountedThoughItHasNotHeardOfTheStart) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Scenario scenario = machines(2, 1, 2);
    scenario.seed = seed;
    scenario.fit_counts = {1};
    scenario.bad_machines = {0};
    scenario.options.max_restarts = 1;
    scenario.step_seconds = 30;
    scenario.network.late = 0.1, scenario.network.latest = 5;
    const Verdict verdict = simulate(scenario);
    EXPECT_EQ(verdict.violation, "") << seed;
    EXPECT_TRUE(verdict.is_complete) << seed;
  }
  EXPECT_EQ(simulate(with_spares(10126049)).violation, "");
}

// Without one that waits it ends, at once and for all.
TEST_F(ControlPlane, ARunAtItsLeastEndsWithAMachineThatNobodyReplaces) {
  Scenario scenario = machines(3, 3, 4);
  scenario.bad_machines = {1};
  const Verdict verdict = simulate(scenario);
  EXPECT_EQ(verdict.violation, "");
  EXPECT_FALSE(verdict.is_complete);
  EXPECT_EQ(verdict.exit_codes, (std::vector<int>{137, 137, 137}));
}

// The launcher of one machine is killed at every moment around the end, where messages may be late: before its ranks
// are done, between that and the end of the others' ranks, and after it. The others return one code, and not 69 after
// one has seen that all are done.
TEST_F(ControlPlane, WheneverALauncherDiesAroundTheEndTheOthersAgree) {
  int num_complete = 0, num_failed = 0;
  for (uint64_t seed = 14; seed < 20; ++seed)
    for (double time = 16; time < 21; time += 0.04) {
      Scenario scenario = machines(3, 3, 3);
      scenario.seed = seed;
      scenario.options.num_local_ranks = 1;
      scenario.network.late = 0.3, scenario.network.latest = 1;
      scenario.faults = {{time, FaultKind::kLauncherKilled, 2}};
      const Verdict verdict = simulate(scenario);
      EXPECT_EQ(verdict.violation, "") << "seed " << seed << ", killed at " << time;
      ++(verdict.is_complete && verdict.exit_codes[0] == 0 ? num_complete : num_failed);
    }
  EXPECT_GT(num_complete, 10);
  EXPECT_GT(num_failed, 10);
  EXPECT_EQ(simulate(without_hangs(117076)).violation, "");
}

// A round has failed and its ranks are slow to stop; meanwhile another machine comes, and one is enough.
TEST_F(ControlPlane, AMachineThatWaitsStartsNothingWhileOthersStillStop) {
  EXPECT_EQ(simulate(without_hangs(116)).violation, "");
}

// The list is agreed, and one of those on it dies before it has said that it is ready.
TEST_F(ControlPlane, ALauncherThatDiesWhileTheyMeetIsDoneWithout) {
  const Verdict verdict = simulate(without_hangs(2256));
  EXPECT_EQ(verdict.violation, "");
  EXPECT_TRUE(verdict.is_complete);
}

// As before, where one that was too late waits for the round that never begins.
TEST_F(ControlPlane, NobodyWaitsForARoundThatNeverBegan) {
  for (const uint64_t seed : {3723, 54491, 55386}) EXPECT_EQ(simulate(without_hangs(seed)).violation, "") << seed;
}

// It was ready, another was not yet, and a third sees that it is gone.
TEST_F(ControlPlane, AllAgreeWhetherARoundBeginsThatOneHasLeft) {
  EXPECT_EQ(simulate(without_hangs(11584)).violation, "");
}

// It is left out, stays for its store, and the last of the others is killed.
TEST_F(ControlPlane, AHostThatIsLeftOutEndsWhenNobodyIsLeft) {
  EXPECT_EQ(simulate(without_hangs(24211)).violation, "");
  EXPECT_EQ(simulate(without_hangs(20842)).violation, "");
}

// Its last will says that the round failed, and comes over the word that it was done.
TEST_F(ControlPlane, ALauncherThatDiesAfterAllAreDoneSpoilsNothing) {
  EXPECT_EQ(simulate(without_hangs(3354)).violation, "");
}

// One launcher gets SIGUSR1, and then a rank fails, or hangs as all end: the others start nothing again either.
TEST_F(ControlPlane, LaunchersAgreeThatTheRunWasToldToEnd) {
  EXPECT_EQ(simulate(without_hangs(300134)).violation, "");
  for (const uint64_t seed : {3146, 6193, 6646, 7399}) EXPECT_EQ(simulate(scenario_of(seed)).violation, "") << seed;
}

// The only machine of the run is told to end between two starts, and another waits for the next one.
TEST_F(ControlPlane, NobodyWaitsForOneThatLeftBeforeTheNextStart) {
  for (double time = 16; time < 26; time += 0.1) {
    Scenario scenario = machines(2, 1, 2);
    scenario.seed = 32;  // messages of the first machine are late, and the second starts alone
    scenario.fit_counts = {1};
    scenario.options.max_restarts = 9;
    scenario.options.last_call_seconds = 0.1;
    scenario.network.late = 0.3, scenario.network.latest = 5;
    scenario.bad_machines = {1};
    scenario.step_seconds = 30;
    scenario.faults = {{time, FaultKind::kTerm, 1}};
    EXPECT_EQ(simulate(scenario).violation, "") << "told at " << time;
  }
}

// One dies before a start begins, and the other of that start as it comes to the next one: after it has left its will
// for that, and before it is on its list. Who waits for the former start to be over goes on.
TEST_F(ControlPlane, NobodyWaitsForOneThatDiesBeforeItIsOnTheNextList) {
  const Verdict verdict = simulate(scenario_of(20026673));
  EXPECT_EQ(verdict.violation, "");
  EXPECT_TRUE(verdict.is_complete);
}

// A launcher dies as it says how its ranks have stopped, and some read that later than others: they read the same.
TEST_F(ControlPlane, WhoDiesWhileItSaysHowItsRanksStoppedIsSeenAlikeByAll) {
  EXPECT_EQ(simulate(scenario_of(30878953)).violation, "");
  std::set<std::vector<int>> seen;
  for (double time = 3.5; time < 4.5; time += 0.0005) {
    Scenario scenario = machines(3, 3, 3);
    scenario.step_seconds = 3;
    scenario.network.late = 0.3, scenario.network.latest = 0.2;
    scenario.options.max_restarts = 0;
    scenario.bad_machines = {2};
    scenario.faults = {{time, FaultKind::kLauncherKilled, 1}};
    const Verdict verdict = simulate(scenario);
    EXPECT_EQ(verdict.violation, "") << "killed at " << time;
    seen.insert(verdict.exit_codes);
  }
  const std::set<std::vector<int>> before_and_after = {{1, -1, 1}, {137, -1, 137}};
  EXPECT_EQ(seen, before_and_after);
}

// A machine's rank is killed, and its launcher waits for the others, which are killed too late for the other machines:
// they decide without it, alike, and it says what happened there.
TEST_F(ControlPlane, WhoStopsTooLateFollowsTheOthersAndTellsOfItsOwnFailure) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const int64_t max_restarts : {0, 1}) {
      Scenario scenario = machines(3, 3, 3);
      scenario.seed = seed;
      scenario.options.max_restarts = max_restarts;
      scenario.options.join_timeout_seconds = 600;
      scenario.burial_seconds = {{0, 200}};  // the store is there
      scenario.faults = {{6, FaultKind::kRankKilled, 0}};
      const Verdict verdict = simulate(scenario);
      EXPECT_EQ(verdict.violation, "") << seed;
      const std::vector<int> ends = {137, 69, 69}, starts_again = {0, 0, 0};
      EXPECT_EQ(verdict.exit_codes, max_restarts == 0 ? ends : starts_again) << seed;
    }
}

// The ranks of the others wait with their state and have no failure to tell of: a machine that says nothing counts as
// lost.
TEST_F(ControlPlane, WhoDoesNotSayHowItsRanksEndedDoesNotEndTheRun) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const int64_t min_nodes : {2, 3}) {
      Scenario scenario = machines(3, min_nodes, 3);
      scenario.seed = seed;
      scenario.holds_ranks = true;
      scenario.num_steps = 60;
      scenario.options.max_restarts = 1;
      scenario.options.join_timeout_seconds = 600;
      scenario.burial_seconds = {{1, 200}};
      scenario.faults = {{6, FaultKind::kRankKilled, 1}};
      const Verdict verdict = simulate(scenario);
      EXPECT_EQ(verdict.violation, "") << seed;
      EXPECT_TRUE(verdict.is_complete) << seed;
    }
}

// A machine is told to end, a rank of another is killed, and the first stops its own too late: the run ends for all,
// and does not go on without that machine, to be ended by it later.
TEST_F(ControlPlane, WhoIsToldToEndHasSaidSoBeforeItStopsItsRanks) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Scenario scenario = machines(3, 2, 3);
    scenario.seed = seed;
    scenario.num_steps = 60;
    scenario.options.max_restarts = 3;
    scenario.burial_seconds = {{1, 200}};
    scenario.faults = {{6, FaultKind::kTerm, 1}, {6.01, FaultKind::kRankKilled, 2}};
    const Verdict verdict = simulate(scenario);
    EXPECT_EQ(verdict.violation, "") << seed;
    EXPECT_EQ(verdict.num_rounds, 1) << seed;
    EXPECT_FALSE(verdict.is_complete) << seed;
  }
}

// Where all machines are needed, whoever is told to end between two starts ends the run, and the others do not wait for
// it until their time to join is over.
TEST_F(ControlPlane, WhoIsToldToEndBetweenTwoStartsIsNotWaitedFor) {
  int num_between = 0;
  for (double time = 16; time < 26; time += 0.1) {
    Scenario scenario = machines(3, 3, 3);
    scenario.options.max_restarts = 9;
    scenario.options.join_timeout_seconds = 600;
    scenario.bad_machines = {1};
    scenario.step_seconds = 30;
    scenario.faults = {{time, FaultKind::kTerm, 1}};
    const Verdict verdict = simulate(scenario);
    EXPECT_EQ(verdict.violation, "") << "told at " << time;
    EXPECT_LT(verdict.seconds, time + 120) << "told at " << time;
    num_between += verdict.exit_codes == std::vector<int>{69, 143, 69} ? 1 : 0;
  }
  EXPECT_GT(num_between, 5);
}

// A rank has waited for longer than --hang-timeout when all ranks of its machine are stopped for a while; another has
// made progress just before.
TEST_F(ControlPlane, WhoWaitedForLongBeforeAllWereStoppedIsNotEnded) {
  EXPECT_EQ(simulate(scenario_of(2056683)).violation, "");
}

// Its network is slow, and the launcher looks at nothing for some seconds.
TEST_F(ControlPlane, ThatAllRanksAreStoppedIsSaidOnceAlsoWhenTheLauncherPauses) {
  EXPECT_EQ(simulate(scenario_of(2156170)).violation, "");
}

// The launcher waits for its store for some seconds, again and again: these pauses do not count, but they do not make
// the time of a rank start anew either.
TEST_F(ControlPlane, WhoHangsIsNamedInTimeThoughTheStoreIsSlow) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Scenario scenario = machines(2, 1, 2);
    scenario.seed = seed;
    scenario.num_steps = 60;
    scenario.has_phases = true;
    scenario.network.late = 0.05, scenario.network.latest = 5;
    scenario.faults = {{40, FaultKind::kRankHangs, 0, {.kind = HangKind::kDisk}}};
    const Verdict verdict = simulate(scenario);
    EXPECT_EQ(verdict.violation, "") << seed;
    EXPECT_EQ(verdict.num_named, 1) << seed;
  }
  EXPECT_EQ(simulate(scenario_of(10058799)).violation, "");
}

// A machine's only rank is stopped, and let go on after that is said: those that waited for it, and are stopped then,
// have five times that long, and the last one gives up waiting for them before. With --max-restarts 0 the run ends.
TEST_F(ControlPlane, WhoIsKnownForALongWaitMayBeGivenUpBeforeItIsNamed) {
  for (const auto& scenario_of : {control_plane::scenario_of, with_spares, with_held_ranks})
    EXPECT_EQ(simulate(scenario_of(10101424)).violation, "");
}

// The launcher looks each half second, and a signal wakes it a fifth of one after a look.
TEST_F(ControlPlane, ASignalMayMakeALookLater) { EXPECT_EQ(simulate(scenario_of(30393748)).violation, ""); }

// Two ranks sleep in an exchange at once, so that nobody is left whose wait ends: each ends with its own exchange. A
// real one that goes on has made progress by that (base/whereabouts.cpp: ~WaitsFor) and is not named either.
TEST_F(ControlPlane, WhoseExchangeHasTimedOutIsNotNamed) { EXPECT_EQ(simulate(scenario_of(2356851)).violation, ""); }

// All ranks of a machine are stopped, go on after 23 s, and one hangs in the next step: it has 5 times that stretch.
TEST_F(ControlPlane, AStretchOfAStopCountsAlsoWhenTheRunIsToldToEnd) {
  EXPECT_EQ(simulate(scenario_of(2379924)).violation, "");
}

// A machine is told to end between two starts, which ends the run where all are needed. Another, some of whose messages
// are late, closes the list with a spare one in its place and has not heard of that yet. (Two of these seeds do so.)
TEST_F(ControlPlane, NoStartFollowsAnEndThatWhoClosesTheListHasNotHeardOf) {
  for (uint64_t seed = 0; seed < 60; ++seed)
    for (double time = 12; time < 26; time += 2) {
      Scenario scenario = machines(3, 2, 2);
      scenario.seed = seed;
      scenario.options.max_restarts = 9;
      scenario.network.late = 0.1, scenario.network.latest = 5;
      scenario.bad_machines = {0};
      scenario.step_seconds = 30;
      scenario.faults = {{time, FaultKind::kTerm, 1}};
      EXPECT_EQ(simulate(scenario).violation, "") << "seed " << seed << ", told at " << time;
    }
  EXPECT_EQ(simulate(scenario_of(2393114)).violation, "");
}

// All is trained, but a rank hangs as it ends; in the start after that a launcher dies before its ranks are started.
TEST_F(ControlPlane, AStartThatOneNeverTookPartInHasNotEndedWell) {
  EXPECT_EQ(simulate(with_held_ranks(6023261)).violation, "");
}

// The launcher has told that the run goes on without a machine; then all of it ends, which is told as well.
TEST_F(ControlPlane, ARunThatGoesOnWithoutAMachineAndEndsIsNotForgotten) {
  for (const uint64_t seed : {24211, 20842}) EXPECT_EQ(simulate(without_hangs(seed)).violation, "") << seed;
  for (const uint64_t seed : {1778, 2160, 3908}) EXPECT_EQ(simulate(scenario_of(seed)).violation, "") << seed;
}

}  // namespace
}  // namespace espalier::control_plane
