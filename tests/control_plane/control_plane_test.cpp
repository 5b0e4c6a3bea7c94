// Clusters of launchers on a virtual clock, each run drawn from a seed (cluster.h says what has to hold).
//
//   ESPALIER_CONTROL_PLANE_SEEDS=FIRST:COUNT build/bin/espalier_control_plane_test --gtest_filter=*Seeds
// runs others than the suite's; of COUNT 1 every event is written to stderr.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/log.h"
#include "tests/control_plane/cluster.h"

namespace espalier::control_plane {
namespace {

class ControlPlane : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kQuiet); }
  void TearDown() override { set_log_level(before_); }

 private:
  const LogLevel before_ = log_level();
};

TEST_F(ControlPlane, HoldsForAllSeeds) {
  uint64_t first = 0, count = 300;
  if (const char* seeds = std::getenv("ESPALIER_CONTROL_PLANE_SEEDS")) {
    const std::string text = seeds;
    first = std::stoull(text);
    count = std::stoull(text.substr(text.find(':') + 1));
  }
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Scenario scenario = scenario_of(seed);
    EXPECT_EQ(simulate(scenario, count == 1).violation, "") << scenario.text();
  }
}

TEST_F(ControlPlane, ASeedRepeatsExactly) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Verdict once = simulate(scenario_of(seed)), again = simulate(scenario_of(seed));
    EXPECT_EQ(once.exit_codes, again.exit_codes) << seed;
    EXPECT_EQ(once.seconds, again.seconds) << seed;
  }
}

// A round has failed and its ranks are slow to stop; meanwhile another machine comes, and one is enough.
TEST_F(ControlPlane, AMachineThatWaitsStartsNothingWhileOthersStillStop) {
  EXPECT_EQ(simulate(scenario_of(116)).violation, "");
}

// The list is agreed, and one of those on it dies before it has said that it is ready.
TEST_F(ControlPlane, ALauncherThatDiesWhileTheyMeetIsDoneWithout) {
  const Verdict verdict = simulate(scenario_of(2256));
  EXPECT_EQ(verdict.violation, "");
  EXPECT_TRUE(verdict.is_complete);
}

// As before, where one that was too late waits for the round that never begins.
TEST_F(ControlPlane, NobodyWaitsForARoundThatNeverBegan) { EXPECT_EQ(simulate(scenario_of(3723)).violation, ""); }

// It was ready, another was not yet, and a third sees that it is gone.
TEST_F(ControlPlane, AllAgreeWhetherARoundBeginsThatOneHasLeft) {
  EXPECT_EQ(simulate(scenario_of(11584)).violation, "");
}

// Its last will says that the round failed, and comes over the word that it was done.
TEST_F(ControlPlane, ALauncherThatDiesAfterAllAreDoneSpoilsNothing) {
  EXPECT_EQ(simulate(scenario_of(3354)).violation, "");
}

}  // namespace
}  // namespace espalier::control_plane
