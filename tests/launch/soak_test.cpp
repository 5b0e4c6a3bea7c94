// scripts/soak: faults of every kind planted into one run, which ends with the bits of one that was left alone.
#include <gtest/gtest.h>

#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace soak_test {

TEST(Soak, FaultsOfEveryKindCostTimeAndNothingElse) {
  const TemporaryFolder folder;
  const bool is_long = long_version();
  const Shell run = shell(folder, concat("ESPALIER=", ESPALIER_PROGRAM, " scripts/soak ",
                                         is_long ? "--minutes 10 --every 60" : "--minutes 0.1 --every 0"));
  EXPECT_EQ(run.exit_code, 0) << run.output << run.errors;
  EXPECT_NE(run.output.find("bitwise equal"), std::string::npos) << run.output << run.errors;
  for (const char* kind : {"kill", "stop", "pause", "launcher", "end", "disk", "damage"})
    EXPECT_NE(run.errors.find(concat(", ", kind, ": ")), std::string::npos) << kind << run.errors;
  std::printf("%s", run.output.c_str());
}

}  // namespace soak_test
}  // namespace espalier::test
