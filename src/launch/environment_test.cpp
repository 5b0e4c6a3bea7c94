// Each set of variables is what that launcher gives its processes.
#include "launch/environment.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"

namespace espalier::launch {
namespace {

Variables torchrun_variables() {
  return {{"RANK", "5"},
          {"LOCAL_RANK", "1"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"GROUP_RANK", "1"},
          {"GROUP_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "alpha"},
          {"MASTER_PORT", "40123"},
          {"TORCHELASTIC_RESTART_COUNT", "2"},
          {"TORCHELASTIC_MAX_RESTARTS", "3"},
          {"TORCHELASTIC_RUN_ID", "7"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
}

Variables slurm_variables() {
  return {{"SLURM_JOB_ID", "4123456"},
          {"SLURM_PROCID", "3"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_NTASKS", "4"},
          {"SLURM_NNODES", "2"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
          {"SLURM_JOB_NODELIST", "n[07-08]"},
          {"SLURM_STEP_NODELIST", "n[07-08]"}};
}

std::string message_of(const Variables& variables, const RankFlags& flags = {}) {
  try {
    detect_environment(variables, flags);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

void expect_place(const RankEnvironment& place, LaunchKind kind, const std::vector<int64_t>& ranks,
                  const std::string& master) {
  EXPECT_EQ(to_string(place.kind), to_string(kind));
  EXPECT_EQ((std::vector<int64_t>{place.rank, place.world_size, place.local_rank, place.local_world_size}), ranks);
  EXPECT_EQ(concat(place.master_address, ":", place.master_port), master);
  EXPECT_FALSE(place.explanation.empty());
}

TEST(Environment, NothingIsASingleProcess) {
  const RankEnvironment place = detect_environment(Variables{});
  expect_place(place, LaunchKind::kSingle, {0, 1, 0, 1}, "127.0.0.1:0");
  EXPECT_FALSE(place.foreign_store || place.launcher_store);
}

TEST(Environment, ABatchScriptOfSlurmIsASingleProcess) {
  const RankEnvironment place = detect_environment(
      Variables{{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_NNODES", "2"}});
  expect_place(place, LaunchKind::kSingle, {0, 1, 0, 1}, "127.0.0.1:0");
}

TEST(Environment, ASingleProcessInAJobOfSeveralTasksIsDoubted) {
  const Variables batch = {{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}};
  const auto doubt = [&](const Variables& more) {
    Variables variables = batch;
    variables.insert(more.begin(), more.end());
    return detect_environment(variables).doubt;
  };
  EXPECT_EQ(
      doubt({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_NUM_NODES", "2"}}),
      "one process trains alone: SLURM's job 12 has 8 tasks on 2 nodes, and this one was not started by srun. Write "
      "`srun espalier train ...` for a process in each task; where one is meant, ask for --ntasks 1 with "
      "--cpus-per-task.");
  // sbatch --nodes 4 alone, which sets no number of tasks.
  EXPECT_NE(doubt({{"SLURM_NNODES", "4"}, {"SLURM_TASKS_PER_NODE", "1(x4)"}}).find("has 4 tasks on 4 nodes,"),
            std::string::npos);
  EXPECT_EQ(doubt({{"SLURM_NTASKS", "1"}, {"SLURM_JOB_NUM_NODES", "1"}}), "");
  EXPECT_EQ(doubt({}), "");
  // Ranks of a launcher in the batch script are not alone, nor is the one task of a step that was asked for.
  EXPECT_EQ(doubt({{"SLURM_NTASKS", "8"}, {"RANK", "0"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}}), "");
  EXPECT_EQ(doubt({{"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}), "");
}

TEST(Environment, ATaskThatHasLostItsStepIsRefused) {
  const Variables task = {{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}};
  EXPECT_EQ(message_of(task),
            "the environment has SLURM_PROCID=3, of one of several tasks, but no SLURM_STEP_ID with "
            "SLURM_STEP_NUM_TASKS, which srun sets. Pass all of SLURM_* on to the process (containers and sudo leave "
            "variables out), or set RANK and WORLD_SIZE.");
  Variables by_hand = task;
  by_hand.insert({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(detect_environment(by_hand).rank, 3);
}

TEST(Environment, UnderTorchrunRankZeroConnectsToTheAgentsStore) {
  const RankEnvironment place = detect_environment(torchrun_variables());
  expect_place(place, LaunchKind::kTorchrun, {5, 8, 1, 4}, "alpha:40123");
  EXPECT_TRUE(place.foreign_store);
  EXPECT_FALSE(place.launcher_store);
  EXPECT_EQ(place.node_rank, 1);
  EXPECT_EQ(place.restart_count, 2);
  EXPECT_EQ(place.run_id, "7");
}

TEST(Environment, OurOwnLauncherIsKnownByItsMark) {
  Variables variables = torchrun_variables();
  variables["ESPALIER_LAUNCH"] = "1";
  const RankEnvironment place = detect_environment(variables);
  expect_place(place, LaunchKind::kEspalier, {5, 8, 1, 4}, "alpha:40123");
  EXPECT_TRUE(place.launcher_store);
  EXPECT_FALSE(place.foreign_store);
}

TEST(Environment, RanksKnowWhenTheirLauncherWasStarted) {
  const auto read = [](const std::string& text) {
    return launched_at({{"ESPALIER_LAUNCH", "1"}, {kLaunchedAtVariable, text}});
  };
  const SteadyTime now = SteadyTime::clock::now();
  EXPECT_EQ(read(launched_at_text(now)), now);
  EXPECT_EQ(read("1500000000"), SteadyTime(std::chrono::milliseconds(1500)));
  EXPECT_EQ(read(launched_at_text(now + std::chrono::hours(1))), std::nullopt) << "of a machine that runs for longer";
  EXPECT_EQ(launched_at({{"ESPALIER_LAUNCH", "1"}}), std::nullopt);
  EXPECT_EQ(launched_at({{kLaunchedAtVariable, "1500000000"}}), std::nullopt) << "left by another program";
  for (const char* text : {"-1", "noon", "1.5", "99999999999999999999"}) EXPECT_THROW(read(text), UserError) << text;
}

TEST(Environment, SlurmGivesTheFirstHostAndAPortOfTheJob) {
  const RankEnvironment place = detect_environment(slurm_variables());
  expect_place(place, LaunchKind::kSlurm, {3, 4, 1, 2}, "n07:18456");  // 15000 + 4123456 % 10000
  EXPECT_EQ(place.node_rank, 1);
  EXPECT_EQ(place.run_id, "4123456.0");
}

TEST(Environment, TheMastersVariablesWinOverSlurms) {
  Variables variables = slurm_variables();
  variables["MASTER_ADDR"] = "n07-ib0";
  variables["MASTER_PORT"] = "6000";
  expect_place(detect_environment(variables), LaunchKind::kSlurm, {3, 4, 1, 2}, "n07-ib0:6000");
}

TEST(Environment, EachMpiIsUnderstood) {
  const Variables base = {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  const std::vector<std::pair<LaunchKind, Variables>> cases = {
      {LaunchKind::kOpenMpi,
       {{"OMPI_COMM_WORLD_RANK", "5"},
        {"OMPI_COMM_WORLD_SIZE", "8"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
        {"OMPI_COMM_WORLD_NODE_RANK", "1"},
        {"PMIX_RANK", "5"}}},
      {LaunchKind::kMpich, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}}},
      {LaunchKind::kMvapich,
       {{"MV2_COMM_WORLD_RANK", "5"},
        {"MV2_COMM_WORLD_SIZE", "8"},
        {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
        {"MV2_COMM_WORLD_LOCAL_SIZE", "4"}}},
      {LaunchKind::kPals,
       {{"PALS_RANKID", "5"},
        {"PMI_RANK", "5"},
        {"PMI_SIZE", "8"},
        {"PALS_LOCAL_RANKID", "1"},
        {"PALS_LOCAL_SIZE", "4"}}},
      {LaunchKind::kJsm,
       {{"JSM_NAMESPACE_RANK", "5"},
        {"JSM_NAMESPACE_SIZE", "8"},
        {"JSM_NAMESPACE_LOCAL_RANK", "1"},
        {"JSM_NAMESPACE_LOCAL_SIZE", "4"}}},
  };
  for (auto [kind, variables] : cases) {
    variables.insert(base.begin(), base.end());
    expect_place(detect_environment(variables), kind, {5, 8, 1, 4}, "a:1");
  }
}

TEST(Environment, MpiOnOneMachineNeedsNoAddress) {
  const Variables variables = {{"OMPI_COMM_WORLD_RANK", "2"},
                               {"OMPI_COMM_WORLD_SIZE", "3"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}};
  expect_place(detect_environment(variables), LaunchKind::kOpenMpi, {2, 3, 2, 3}, "127.0.0.1:29500");
}

TEST(Environment, PbsNamesTheFirstHostInItsFile) {
  const std::string file = testing::TempDir() + "espalier_pbs_nodefile";
  write_file_atomically(file, "x3001c0s1b0n0.hsn\nx3001c0s1b0n0.hsn\nx3002c0s1b0n0.hsn\n");
  const RankEnvironment place = detect_environment(Variables{{"PALS_RANKID", "4"},
                                                             {"PMI_SIZE", "8"},
                                                             {"PALS_LOCAL_RANKID", "0"},
                                                             {"PALS_LOCAL_SIZE", "4"},
                                                             {"PBS_NODEFILE", file},
                                                             {"PBS_JOBID", "1234.polaris-pbs-01"}});
  EXPECT_EQ(place.master_address, "x3001c0s1b0n0.hsn");
  EXPECT_GE(place.master_port, 15000);
  EXPECT_LT(place.master_port, 25000);
}

TEST(Environment, MpiOnSeveralMachinesAsksForTheAddress) {
  EXPECT_NE(message_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "4"}}).find("Set MASTER_ADDR"),
            std::string::npos);
}

TEST(Environment, FlagsWinOverEverything) {
  const RankFlags flags{.rank = 1, .world_size = 2, .master_address = "127.0.0.1", .master_port = 5000};
  expect_place(detect_environment(slurm_variables(), flags), LaunchKind::kFlags, {1, 2, 1, 2}, "127.0.0.1:5000");
}

// All ranks have to come to the same answer, or they meet in different ways.
TEST(Environment, OneMachineIsWhatIsSaidNotWhatIsGuessed) {
  const auto is_one = [](Variables variables) {
    variables.emplace("WORLD_SIZE", "2");
    return detect_environment(variables).one_machine;
  };
  EXPECT_TRUE(is_one({{"RANK", "1"}}));
  EXPECT_TRUE(is_one({{"RANK", "1"}, {"MASTER_ADDR", "localhost"}}));
  EXPECT_TRUE(is_one({{"RANK", "1"}, {"MASTER_ADDR", "n07"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}));
  EXPECT_FALSE(is_one({{"RANK", "0"}, {"MASTER_ADDR", "n07"}, {"LOCAL_RANK", "0"}}));
  EXPECT_FALSE(is_one({{"RANK", "1"}, {"MASTER_ADDR", "n07"}, {"LOCAL_RANK", "1"}})) << "nobody says how many";
  EXPECT_FALSE(is_one({{"RANK", "1"}, {"MASTER_ADDR", "n07"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}));
  EXPECT_FALSE(is_one({{"RANK", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}})) << "through a tunnel";
  EXPECT_FALSE(detect_environment(slurm_variables()).one_machine);
  EXPECT_TRUE(detect_environment(Variables{}).one_machine) << "a single process";
  EXPECT_TRUE(detect_environment(slurm_variables()).has_launcher());
  EXPECT_FALSE(detect_environment(Variables{{"RANK", "1"}, {"WORLD_SIZE", "2"}}).has_launcher());
}

TEST(Environment, MachinesMayChangeWhereTheLauncherSaysSo) {
  Variables variables = {{"ESPALIER_LAUNCH", "1"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_FALSE(detect_environment(variables).machines_may_change);
  variables[kMachinesMayChangeVariable] = "1";
  EXPECT_TRUE(detect_environment(variables).machines_may_change);
  variables.erase("ESPALIER_LAUNCH");
  EXPECT_FALSE(detect_environment(variables).machines_may_change) << "of a launcher around this one";
}

TEST(Environment, RanksByHandOnOneMachineAreCompleted) {
  expect_place(detect_environment(Variables{{"RANK", "1"}, {"WORLD_SIZE", "3"}}), LaunchKind::kByHand, {1, 3, 1, 3},
               "127.0.0.1:29500");
}

TEST(Environment, AVariableExpandedBeforeSrunIsADisagreement) {
  Variables variables = slurm_variables();
  variables["RANK"] = "0", variables["WORLD_SIZE"] = "4", variables["MASTER_ADDR"] = "n07";
  const std::string message = message_of(variables);
  EXPECT_NE(message.find("RANK=0, WORLD_SIZE=4"), std::string::npos) << message;
  EXPECT_NE(message.find("SLURM_PROCID=3, SLURM_STEP_NUM_TASKS=4"), std::string::npos) << message;
  variables["RANK"] = "3";
  EXPECT_EQ(detect_environment(variables).kind, LaunchKind::kByHand);
}

TEST(Environment, SlurmAndAnMpiOfOtherRanksIsADisagreement) {
  Variables variables = slurm_variables();
  variables["PMI_RANK"] = "2", variables["PMI_SIZE"] = "4";
  EXPECT_NE(message_of(variables).find("SLURM and MPICH disagree"), std::string::npos);
  variables["PMI_RANK"] = "3";
  EXPECT_EQ(detect_environment(variables).kind, LaunchKind::kSlurm);
}

TEST(Environment, LaunchersInsideASlurmStepNumberTheirOwnRanks) {
  Variables variables = slurm_variables();  // one agent a task: rank 3 of 4 for SLURM, 5 of 8 for torchrun
  variables.merge(torchrun_variables());
  expect_place(detect_environment(variables), LaunchKind::kTorchrun, {5, 8, 1, 4}, "alpha:40123");

  // mpirun's daemons are a step with one task on each machine but the first.
  Variables daemons = {{"SLURM_JOB_ID", "1"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "1"},
                       {"SLURM_STEP_TASKS_PER_NODE", "1"},
                       {"SLURM_JOB_NODELIST", "n[1-2]"},
                       {"OMPI_COMM_WORLD_RANK", "3"},
                       {"OMPI_COMM_WORLD_SIZE", "4"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  expect_place(detect_environment(daemons), LaunchKind::kOpenMpi, {3, 4, 1, 2}, "n1:15001");
}

TEST(Environment, HalfSetVariablesAreRefused) {
  EXPECT_NE(message_of({{"RANK", "1"}}).find("no WORLD_SIZE"), std::string::npos);
  EXPECT_NE(message_of({{"WORLD_SIZE", "8"}}).find("no RANK"), std::string::npos);
  EXPECT_NE(message_of({{"RANK", "8"}, {"WORLD_SIZE", "8"}}).find("rank 8 is none of 8"), std::string::npos);
  EXPECT_NE(message_of({{"RANK", "$SLURM_PROCID"}, {"WORLD_SIZE", "8"}}).find("not a whole number"), std::string::npos);
  EXPECT_NE(message_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}).find("not a port"),
            std::string::npos);
  EXPECT_NE(message_of({}, {.rank = 1}).find("together"), std::string::npos);
}

TEST(Environment, AWorldOfOneWithoutRankIsASingleProcess) {
  EXPECT_EQ(detect_environment(Variables{{"WORLD_SIZE", "1"}}).kind, LaunchKind::kSingle);
}

}  // namespace
}  // namespace espalier::launch
