#include "launch/launch_options.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::launch {
namespace {

using Words = std::vector<std::string>;

LaunchOptions read(const Words& words, const std::map<std::string, std::string>& variables = {}) {
  const auto options = read_launch_options(words, variables);
  EXPECT_TRUE(options.has_value());
  return options.value_or(LaunchOptions{});
}

std::string refusal_of(const Words& words) {
  try {
    read_launch_options(words, {});
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(LaunchOptions, TheProgramBeginsAtTheFirstPlainWord) {
  const LaunchOptions options =
      read({"--nproc_per_node=4", "--max-restarts", "3", "pretrain_gpt.py", "--nnodes", "7", "--tee", "3"});
  EXPECT_EQ(options.program, (Words{"pretrain_gpt.py", "--nnodes", "7", "--tee", "3"}));
  EXPECT_EQ(options.num_local_ranks, 4);
  EXPECT_EQ(options.max_restarts, 3);
  EXPECT_TRUE(options.is_single_node());
  EXPECT_EQ(options.tee.all, Streams{});
}

TEST(LaunchOptions, BloomsLaunchLineIsUnderstood) {
  const LaunchOptions options =
      read({"--nproc_per_node", "8", "--nnodes", "48", "--rdzv_endpoint", "jean-zay-iam01:6000", "--rdzv_backend",
            "c10d", "--max_restarts", "0", "--tee", "3", "--node_rank", "5", "--role",
            "jean-zay-iam06:", "pretrain_gpt.py", "--tensor-model-parallel-size", "4"});
  EXPECT_EQ(options.min_nodes, 48);
  EXPECT_EQ(options.max_nodes, 48);
  EXPECT_EQ(options.rendezvous, Rendezvous::kC10d);
  EXPECT_EQ(options.store_host, "jean-zay-iam01");
  EXPECT_EQ(options.store_port, 6000);
  EXPECT_EQ(options.tee.all, (Streams{true, true}));
  EXPECT_EQ(options.role, "jean-zay-iam06:");
}

TEST(LaunchOptions, StaticMachinesMeetAtTheMaster) {
  const LaunchOptions options =
      read({"--nnodes", "2", "--node-rank", "1", "--master-addr", "alpha", "--master-port", "6001", "train", "gpt"});
  EXPECT_EQ(options.rendezvous, Rendezvous::kStatic);
  EXPECT_EQ(options.node_rank, 1);
  EXPECT_EQ(options.store_host, "alpha");
  EXPECT_EQ(options.store_port, 6001);
}

TEST(LaunchOptions, OneMachineWithoutAPlaceIsStandalone) {
  const LaunchOptions first = read({"train"}), second = read({"--standalone", "train"});
  EXPECT_EQ(first.store_port, 0);
  EXPECT_NE(first.run_id, second.run_id);
  EXPECT_EQ(read({"--rdzv-id", "7", "train"}).run_id, "7");
}

TEST(LaunchOptions, ARangeOfMachinesAndItsTimes) {
  const LaunchOptions options = read({"--nnodes=2:4", "--rdzv-backend=c10d", "--rdzv-endpoint=[::1]:5",
                                      "--rdzv-conf=join_timeout=12,last_call_timeout=0.5,is_host=true", "train"});
  EXPECT_EQ(options.min_nodes, 2);
  EXPECT_EQ(options.max_nodes, 4);
  EXPECT_EQ(options.store_host, "::1");
  EXPECT_EQ(options.store_port, 5);
  EXPECT_EQ(options.join_timeout_seconds, 12);
  EXPECT_EQ(options.last_call_seconds, 0.5);
  EXPECT_EQ(options.hosts_store, true);
  EXPECT_EQ(read({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=alpha", "train"}).store_port, 29400);
}

TEST(LaunchOptions, StreamsByLocalRank) {
  const LaunchOptions options = read({"-r", "0:3,1:1", "-t=2", "train"});
  EXPECT_EQ(options.redirects.of(0), (Streams{true, true}));
  EXPECT_EQ(options.redirects.of(1), (Streams{true, false}));
  EXPECT_EQ(options.redirects.of(2), Streams{});
  EXPECT_EQ(options.tee.of(5), (Streams{false, true}));
}

TEST(LaunchOptions, TheEnvironmentsValuesYieldToFlags) {
  const std::map<std::string, std::string> variables = {
      {"PET_NPROC_PER_NODE", "3"}, {"PET_MAX_RESTARTS", "5"}, {"PET_NO_PYTHON", "1"}};
  const LaunchOptions options = read({"--max-restarts=1", "prog"}, variables);
  EXPECT_EQ(options.num_local_ranks, 3);
  EXPECT_EQ(options.max_restarts, 1);
  EXPECT_TRUE(options.runs_other_program);
}

TEST(LaunchOptions, RanksPerGpu) {
  EXPECT_EQ(read({"--nproc-per-node=gpu", "train"}, {{"CUDA_VISIBLE_DEVICES", "0,3,5"}}).num_local_ranks, 3);
}

TEST(LaunchOptions, EveryProblemIsNamed) {
  EXPECT_NE(refusal_of({}).find("nothing to start"), std::string::npos);
  EXPECT_NE(refusal_of({"--nproc-per-node", "many", "train"}).find("--nproc-per-node many is neither"),
            std::string::npos);
  EXPECT_NE(refusal_of({"--nnodes", "4:2", "train"}).find("--nnodes 4:2"), std::string::npos);
  EXPECT_NE(refusal_of({"--nnodes", "2:4", "train"}).find("needs --rdzv-backend c10d"), std::string::npos);
  EXPECT_NE(refusal_of({"--nnodes", "2", "--rdzv-backend", "c10d", "train"}).find("needs --rdzv-endpoint"),
            std::string::npos);
  EXPECT_NE(refusal_of({"--nnodes", "2", "--node-rank", "2", "train"}).find("none of 2 machines"), std::string::npos);
  EXPECT_NE(refusal_of({"--nnodes", "2", "--standalone", "train"}).find("--standalone is for one machine"),
            std::string::npos);
  EXPECT_NE(refusal_of({"--tee", "4", "train"}).find("--tee 4 is neither"), std::string::npos);
  EXPECT_NE(refusal_of({"--rdzv-conf", "speed=9", "train"}).find("--rdzv-conf speed=9"), std::string::npos);
  EXPECT_NE(refusal_of({"--rdzv-backend", "etcd", "train"}).find("use c10d"), std::string::npos);
  EXPECT_NE(refusal_of({"--nproc-per-nod", "4", "train"}).find("--nproc-per-node"), std::string::npos);
  EXPECT_NE(refusal_of({"--local-ranks-filter", "a", "train"}).find("not a list of local ranks"), std::string::npos);
}

}  // namespace
}  // namespace espalier::launch
