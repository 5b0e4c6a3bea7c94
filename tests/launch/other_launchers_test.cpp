// The same run by hand and under real torchrun has the bits that it has under espalier launch.
#include <gtest/gtest.h>

#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace other_launchers_test {

class OtherLaunchers : public testing::Test {
 protected:
  void SetUp() override {
    write_token_files(folder_ / "data", 300, 5);
    const Shell launched = shell(folder_, "espalier launch --nproc-per-node 2 " + training("launch"));
    ASSERT_EQ(launched.exit_code, 0) << launched.errors;
  }
  std::string training(const std::string& save) const {
    return "train gpt" + command_line(tiny_run(folder_ / "data") +
                                      Words{"--save", folder_ / save, "--save-interval", "1000", "--num-threads", "1"});
  }
  void expect_same_bits(const std::string& save) const {
    EXPECT_EQ(step_records(folder_ / save), step_records(folder_ / "launch"));
    EXPECT_EQ(different_tensors(folder_ / save + "/step_00000010", folder_ / "launch/step_00000010"), Words{});
  }
  TemporaryFolder folder_;
};

TEST_F(OtherLaunchers, ByHandRankZeroHostsTheStore) {
  // The last to start is the one that hosts.
  const Shell result =
      shell(folder_, "export WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$((20000 + RANDOM % 9000)); " +
                         ("(RANK=1 espalier " + training("hand") + ") & sleep 0.5; RANK=0 espalier ") +
                         training("hand") + " && wait $!");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("ranks by the environment: RANK=0, WORLD_SIZE=2"), std::string::npos) << result.errors;
  expect_same_bits("hand");
}

// Nobody watches these ranks but they themselves.
TEST_F(OtherLaunchers, ByHandARankThatDiesDuringTheLastSaveIsMissedSoon) {
  const std::string save = folder_ / "dying";
  const Shell result = shell(
      folder_, "export WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$((20000 + RANDOM % 9000)); RANK=1 espalier " +
                   training("dying") + " & victim=$!; RANK=0 espalier " + training("dying") +
                   " & other=$!; until [ -d " + save + "/step_00000010.partial -o -d " + save +
                   "/step_00000010 ]; do :; done; kill -STOP $victim; sleep 1; kill -KILL $victim; wait $other");
  EXPECT_EQ(result.exit_code, 69) << result.errors;
  EXPECT_NE(result.errors.find("Usually another process has ended"), std::string::npos) << result.errors;
}

// The second half of a run exchanges by another transport, and in another instruction set: reported once, by the first
// rank.
TEST_F(OtherLaunchers, WhatMovesTheLastBitsIsToldOnResuming) {
  const std::string launch = "espalier launch --nproc-per-node 2 ", words = training("moved");
  const Shell first = shell(folder_, launch + words + " --exit-interval 4");
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_NE(first.errors.find("ranks communicate by shared memory"), std::string::npos) << first.errors;
  EXPECT_NE(first.errors.find("instruction set: "), std::string::npos) << first.errors;
  const Shell second = shell(folder_, "ESPALIER_CPU_ISA=generic " + launch + words +
                                          " --distributed-backend gloo --exit-interval 8 --load " + folder_ / "moved");
  ASSERT_EQ(second.exit_code, 0) << second.errors;
  const std::string said = "exchange between processes: shared memory when saved, now Gloo";
  const size_t at = second.errors.find(said);
  ASSERT_NE(at, std::string::npos) << second.errors;
  EXPECT_EQ(second.errors.find(said, at + 1), std::string::npos) << "once";
  EXPECT_NE(second.errors.find("now generic; libtorch "), std::string::npos) << second.errors;
}

TEST_F(OtherLaunchers, MegatronsLineWithOnlyTheInterpreterReplaced) {
  const Shell result =
      shell(folder_, "espalier -u -m torch.distributed.run --nproc_per_node 2 --tee 3 pretrain_gpt.py" +
                         training("megatron").substr(std::string("train gpt").size()) + " --distributed-backend nccl");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const std::string said =
      "[default0]:--distributed-backend nccl: this run is on the CPU, its ranks communicate by shared memory";
  const size_t at = result.errors.find(said);
  ASSERT_NE(at, std::string::npos) << result.errors;
  EXPECT_EQ(result.errors.find("ranks communicate by Gloo", at + said.size()), std::string::npos) << "once";
  EXPECT_NE((result.output + result.errors).find("[default0]: iteration"), std::string::npos);
  expect_same_bits("megatron");
}

TEST_F(OtherLaunchers, UnderRealTorchrunRanksUseItsStoreAndItReadsTheirErrors) {
  const std::string torchrun = std::string(std::getenv("HOME")) + "/.cache/espalier/oracle-venv/bin/torchrun";
  if (!std::filesystem::exists(torchrun)) GTEST_SKIP() << "no " << torchrun << ": tests/oracle/install makes it";
  const std::string start = torchrun + " --standalone --no-python --nproc-per-node 2 espalier ";
  const Shell result = shell(folder_, start + training("torchrun"));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.errors.find("ranks by torchrun: RANK=0, WORLD_SIZE=2"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("in the launcher's rendezvous store"), std::string::npos) << result.errors;
  expect_same_bits("torchrun");
  const Shell failed = shell(folder_, start + "train gpt --num-layers 2");
  EXPECT_EQ(failed.exit_code, 1) << "torchrun's own";
  EXPECT_NE(failed.errors.find("--hidden-size is required", failed.errors.find("Root Cause")), std::string::npos)
      << failed.errors;
}

}  // namespace other_launchers_test
}  // namespace espalier::test
