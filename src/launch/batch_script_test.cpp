// What the schedulers' manuals and the scripts of BLOOM (SLURM) and AuroraGPT (PBS) ask for.
#include "launch/batch_script.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"

namespace espalier::launch {
namespace {

namespace fs = std::filesystem;

BatchJob job_of(Scheduler scheduler) {
  BatchJob job;
  job.scheduler = scheduler;
  job.job_name = "tr11";
  job.num_nodes = 48;
  job.ranks_per_node = 8;
  job.program = "/opt/espalier";
  job.command = {"train", "gpt", "--save", "a b"};
  return job;
}

TEST(BatchScript, OfSlurmInFull) {
  BatchJob job = job_of(Scheduler::kSlurm);
  job.cpus_per_rank = 5;
  job.gpus_per_node = 8;
  job.time = "20:00:00";
  job.partition = "gpu_p5";
  job.account = "six@a100";
  job.array_size = 10;
  job.dependency = "afterany:123";
  job.exclude = "jean-zay-iam[01-02]";
  job.directives = {"--hint=nomultithread"};
  job.setup = {"module load gcc"};
  EXPECT_EQ(
      batch_script(job),
      "#!/bin/bash\n"
      "#SBATCH --job-name=tr11\n"
      "#SBATCH --nodes=48\n"
      "#SBATCH --ntasks-per-node=8\n"
      "#SBATCH --cpus-per-task=5\n"
      "#SBATCH --gpus-per-node=8\n"
      "#SBATCH --time=20:00:00\n"
      "#SBATCH --partition=gpu_p5\n"
      "#SBATCH --account=six@a100\n"
      "#SBATCH --output=%x-%A_%a.out\n"
      "#SBATCH --open-mode=append\n"
      "#SBATCH --array=1-10%1\n"
      "#SBATCH --dependency=afterany:123\n"
      "#SBATCH --exclude=jean-zay-iam[01-02]\n"
      "#SBATCH --signal=USR1@300\n"
      "#SBATCH --requeue\n"
      "#SBATCH --hint=nomultithread\n"
      "\n"
      "module load gcc\n"
      "# srun does not take it from the job since 22.05\n"
      "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n"
      "# --wait: the ranks of a job end within a minute of each other; --kill-on-bad-exit: or at once, if one fails\n"
      "exec srun --wait=60 --kill-on-bad-exit=1 /opt/espalier train gpt --save 'a b'\n");
}

TEST(BatchScript, WithRestartsALauncherRunsOnEachMachine) {
  BatchJob job = job_of(Scheduler::kSlurm);
  job.max_restarts = 3;
  const std::string script = batch_script(job);
  EXPECT_NE(script.find("#SBATCH --ntasks-per-node=1\n"), std::string::npos);
  EXPECT_NE(
      script.find("exec srun --wait=60 --kill-on-bad-exit=1 /opt/espalier launch --nnodes \"$SLURM_NNODES\" "
                  "--nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint \"$MASTER_ADDR:$MASTER_PORT\" --rdzv-id "
                  "\"$SLURM_JOB_ID\" --max-restarts 3 train gpt --save 'a b'\n"),
      std::string::npos)
      << script;
}

TEST(BatchScript, OfPbsAsOnPolaris) {
  BatchJob job = job_of(Scheduler::kPbs);
  job.num_nodes = 2;
  job.ranks_per_node = 4;
  job.cpus_per_rank = 8;
  job.time = "1:00:00";
  job.partition = "debug";
  job.account = "datascience";
  job.constraint = "system=polaris";
  job.directives = {"-l filesystems=home:eagle"};
  const std::string script = batch_script(job);
  for (const char* line :
       {"#PBS -N tr11\n", "#PBS -l select=2:ncpus=32:system=polaris\n", "#PBS -l place=scatter\n",
        "#PBS -l walltime=01:00:00\n", "#PBS -q debug\n", "#PBS -A datascience\n", "#PBS -r y\n",
        "#PBS -l filesystems=home:eagle\n", "cd \"$PBS_O_WORKDIR\"\n", "awk '!seen[$1]++' \"$PBS_NODEFILE\"",
        "-n 8 --ppn 4 --depth 8 --cpu-bind depth ", "train gpt --save 'a b' --exit-duration-in-mins 55\n"})
    EXPECT_NE(script.find(line), std::string::npos) << line << script;
}

// The script's own shell, with an mpiexec that prints what it is given.
TEST(BatchScript, OfPbsLeavesOutBadMachinesAndTellsRanksWhereToMeet) {
  const fs::path folder = fs::path(testing::TempDir()) / "espalier_pbs_script";
  fs::create_directories(folder);
  BatchJob job = job_of(Scheduler::kPbs);
  job.num_nodes = 2;
  job.ranks_per_node = 3;
  job.exclude = "x[1-2]";
  job.spare_nodes = 2;
  EXPECT_NE(batch_script(job).find("#PBS -l select=4\n"), std::string::npos);
  write_file_atomically(folder / "script", batch_script(job));
  write_file_atomically(folder / "nodes", "x1.hsn\nx1.hsn\nx3.hsn\nx3.hsn\nx2\nx21.hsn\nx4\n");
  write_file_atomically(folder / "mpiexec", "#!/bin/bash\necho \"$@\"; cat \"$2\"\n");
  chmod((folder / "mpiexec").c_str(), 0755);
  const auto run = [&](const std::string& nodes) {
    const std::string command =
        concat("PATH=", folder.string(),
               ":$PATH PBS_O_WORKDIR=/ PBS_JOBID='12345[7].polaris' PBS_NODEFILE=", (folder / nodes).string(), " bash ",
               (folder / "script").string(), " > ", (folder / "out").string(), " 2>&1");
    return std::system(command.c_str());
  };
  EXPECT_EQ(run("nodes"), 0);
  const std::string out = read_file(folder / "out");
  EXPECT_NE(out.find(" -n 6 --ppn 3 --env MASTER_ADDR=x3.hsn --env MASTER_PORT=17345 /opt/espalier train gpt"),
            std::string::npos)
      << out;
  EXPECT_TRUE(out.ends_with("x3.hsn\nx21.hsn\n")) << out;
  write_file_atomically(folder / "few", "x1\nx2\nx3\n");
  EXPECT_NE(run("few"), 0);
  EXPECT_EQ(read_file(folder / "out"), "fewer than 2 usable machines\n");
  fs::remove_all(folder);
}

TEST(BatchScript, RefusesWhatASchedulerCannotDo) {
  BatchJob pbs = job_of(Scheduler::kPbs);
  pbs.qos = "high";
  EXPECT_THROW(batch_script(pbs), UserError);
  pbs.qos = "";
  pbs.time = "soon";
  EXPECT_THROW(batch_script(pbs), UserError);
  BatchJob slurm = job_of(Scheduler::kSlurm);
  slurm.spare_nodes = 1;
  EXPECT_THROW(batch_script(slurm), UserError);
}

TEST(BatchScript, ReadsTimesAsSlurmDoes) {
  EXPECT_EQ(parse_time_limit("90"), 90 * 60);
  EXPECT_EQ(parse_time_limit("1:30"), 90);
  EXPECT_EQ(parse_time_limit("1:30:00"), 90 * 60);
  EXPECT_EQ(parse_time_limit("2-12"), 60 * 3600);
  EXPECT_EQ(parse_time_limit("1-0:30"), 24 * 3600 + 1800);
  EXPECT_EQ(parse_time_limit("1-0:0:7"), 24 * 3600 + 7);
  for (const char* text : {"", "x", "1:2:3:4", "-", "1:x"}) EXPECT_FALSE(parse_time_limit(text)) << text;
}

}  // namespace
}  // namespace espalier::launch
