// Launchers of several machines, all on this one, and ranks by hand that wait for others.
#include <gtest/gtest.h>

#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace several_machines_test {

class SeveralMachines : public testing::Test {
 protected:
  void SetUp() override { write_token_files(folder_ / "data", 300, 5); }
  std::string training(const std::string& save) const {
    return "train gpt" + command_line(tiny_run(folder_ / "data") +
                                      Words{"--save", folder_ / save, "--save-interval", "1000", "--num-threads", "1"});
  }
  // Starts `line` in the background, signals it when it has said `word`, and waits for it.
  Shell stopped_at(const std::string& line, const std::string& word) const {
    const std::string said = folder_ / "said";
    return shell(folder_, "touch " + said + "; " + line + " 2> " + said + " & rank=$!; until grep -q '" + word + "' " +
                              said + " || ! kill -0 $rank; do sleep 0.05; done; kill -TERM $rank; wait $rank; " +
                              "code=$?; cat " + said + " >&2; exit $code");
  }
  TemporaryFolder folder_;
};

// What is checked before ranks start is checked for ranks of both machines. On one, replicas divide the optimizer's
// work unless they are told not to, and the norm is added up in another order.
TEST_F(SeveralMachines, TwoLaunchersTrainToTheBitsOfOne) {
  const Shell one = shell(folder_, "espalier launch --nproc-per-node 2 " + training("one") + " --zero-stage 0");
  ASSERT_EQ(one.exit_code, 0) << one.errors;
  const auto machine = [&](int number) {
    return concat("espalier launch --nnodes 2 --node-rank ", number,
                  " --nproc-per-node 1 --master-addr 127.0.0.1 --master-port $port ", training("two"));
  };
  const Shell two =
      shell(folder_, "port=$((20000 + RANDOM % 9000)); " + machine(1) + " & " + machine(0) + " && wait $!");
  ASSERT_EQ(two.exit_code, 0) << two.errors;
  EXPECT_EQ(step_records(folder_ / "two"), step_records(folder_ / "one"));
  EXPECT_EQ(different_tensors(folder_ / "two/step_00000010", folder_ / "one/step_00000010"), Words{});
}

// They would wait for each other in different exchanges, or train with different rates.
TEST_F(SeveralMachines, OtherOptionsThanTheFirstRanksAreNamed) {
  for (const auto& [option, said] :
       {std::pair("--canonical-reduction", "--canonical-reduction: true here, false there"),
        std::pair("--lr 0.5", "--lr: 0.5 here, "), std::pair("--eval-interval 7", "--eval-interval: 7 here, ")}) {
    const auto machine = [&](int number, const std::string& more) {
      return concat("espalier launch --nnodes 2 --node-rank ", number,
                    " --nproc-per-node 1 --master-addr 127.0.0.1 --master-port $port ", training("two"), more);
    };
    const Shell result = shell(folder_, concat("port=$((20000 + RANDOM % 9000)); ", machine(1, concat(" ", option)),
                                               " & ", machine(0, ""), "; wait $!"));
    EXPECT_EQ(result.exit_code, 2) << result.errors;
    EXPECT_NE(result.errors.find("rank 1 was started with other options than rank 0 ("), std::string::npos);
    EXPECT_NE(result.errors.find(said), std::string::npos) << result.errors;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "two/metrics.jsonl"));
  }
}

TEST_F(SeveralMachines, AFirstRankThatWaitsForOthersSaysForWhomAndEndsWhenAsked) {
  const Shell result = stopped_at(
      "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 9000)) espalier " + training("alone"),
      "waiting for rank 1 of 2: ");
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("rank 0 was asked to stop before all processes had arrived: the run did not begin"),
            std::string::npos)
      << result.errors;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "alone"));
}

TEST_F(SeveralMachines, ARankThatFindsNoFirstRankSaysWhereItLooksAndEndsWhenAsked) {
  const Shell result =
      stopped_at("RANK=1 WORLD_SIZE=2 MASTER_ADDR=no-such-host.invalid MASTER_PORT=29511 espalier " + training("alone"),
                 "waiting for rank 0, whose rendezvous store is to be at no-such-host.invalid:29511 (");
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("asked to stop before all processes had arrived"), std::string::npos) << result.errors;
}

TEST_F(SeveralMachines, ALauncherThatWaitsForAnotherEndsWhenAsked) {
  const Shell result =
      stopped_at("espalier launch --nnodes 2 --node-rank 1 --nproc-per-node 1 --master-addr no-such-host.invalid " +
                     training("alone"),
                 "waiting for the launcher of --node-rank 0");
  EXPECT_EQ(result.exit_code, 143) << result.errors;
  EXPECT_NE(result.errors.find("stopped by SIGTERM before the launchers met"), std::string::npos) << result.errors;
}

}  // namespace several_machines_test
}  // namespace espalier::test
