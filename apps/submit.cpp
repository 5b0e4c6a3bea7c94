// espalier submit: a job script from flags, written, shown or handed to the scheduler.
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/become_engine.h"
#include "apps/commands.h"
#include "apps/launch/launched_run.h"
#include "apps/train/check_training.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/shell.h"
#include "config/run_options.h"
#include "families/registry.h"
#include "launch/batch_script.h"
#include "launch/launch_options.h"

namespace espalier {
namespace {

using launch::BatchJob;
using launch::Scheduler;
using Words = std::vector<std::string>;

struct SubmitFlags {
  std::string script;
  bool dry_run = false, json = false, check = true;
};

void add_rows(OptionTable& table, BatchJob& job, SubmitFlags& flags) {
  table.group("job");
  table.add_choice("--scheduler", job.scheduler, {{"slurm", Scheduler::kSlurm}, {"pbs", Scheduler::kPbs}},
                   "whose script to write");
  table.add("--job-name", job.job_name, "name of the job and of the script");
  table.add("--nodes", job.num_nodes, "machines").alias("--nnodes").minimum(1);
  table.add("--nproc-per-node", job.ranks_per_node, "ranks on each").alias("--ntasks-per-node").minimum(1);
  table.add("--cpus-per-task", job.cpus_per_rank, "cores of a rank").minimum(1);
  table.add("--gpus-per-node", job.gpus_per_node, "GPUs on each machine").minimum(1);
  table.add("--time", job.time, "time limit: 20:00:00");
  table.add("--partition", job.partition, "partition, or PBS's queue").alias("--queue");
  table.add("--account", job.account, "account or project");
  table.add("--qos", job.qos, "SLURM's quality of service");
  table.add("--constraint", job.constraint, "features of machines; with PBS: more of the select line, system=polaris");
  table.add("--output", job.output, "the job's output file, with the scheduler's patterns");
  table.group("chain");
  table.add("--array", job.array_size, "this many jobs, one after the other, each continuing where the last stopped")
      .minimum(0)
      .maximum(4'000'000);  // SLURM's own bound of an array's numbers
  table.add("--dependency", job.dependency, "wait for other jobs, as the scheduler writes it: afterany:123");
  table.add("--signal-seconds", job.signal_seconds, "before the end, when ranks save and stop; 0: never").minimum(0);
  table.add_negative("--no-requeue", job.requeue, "do not run again after a machine failed or another job came first");
  table.add("--max-restarts", job.max_restarts, "above 0: espalier launch on each machine restarts failed ranks")
      .minimum(0);
  table.group("machines");
  table.add("--exclude", job.exclude, "machines to avoid: n[01-03],x2");
  table.add("--spare-nodes", job.spare_nodes, "PBS: machines asked for in addition, for those of --exclude").minimum(0);
  table.group("script");
  table.add("--directive", job.directives, "more of the scheduler's options, as written after #SBATCH or #PBS");
  table.add("--setup", job.setup, "lines of shell before the ranks start");
  table.add("--script", flags.script, "file of the script").default_text("JOB_NAME.sbatch or JOB_NAME.pbs");
  table.add_negative("--no-check", flags.check,
                     "do not let train check its options, for example if its files are not on this machine");
  table.add("--dry-run", flags.dry_run, "print the script and do nothing");
  table.add("--json", flags.json, "print an object with script, path and job_id");
}

// What `command` prints, without its last newline.
std::string output_of(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw UserError(concat("cannot start ", command));
  std::string output;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, got);
  const int status = pclose(pipe);
  if (status != 0)
    throw UserError(
        concat(command, " failed with exit code ", WIFEXITED(status) ? WEXITSTATUS(status) : 1, "; the script stays"));
  return strip(output);
}

std::string submit(const BatchJob& job, const std::string& path) {
  // SLURM's --parsable prints "123" or "123;cluster", PBS prints its id.
  const std::string printed =
      output_of((job.scheduler == Scheduler::kSlurm ? "sbatch --parsable " : "qsub ") + shell_word(path));
  return printed.substr(0, printed.find(';'));
}

// Jobs of an array continue where the last one stopped, if the command says where: in the folder of --save, wherever
// the first began.
void check_chain(const Words& command, Problems& problems) {
  const config::Family* const family = families::find_family(command[1]);
  if (family == nullptr) return;  // training says so
  config::RunOptions options(*family);
  Problems told_by_training;
  options.table.parse({command.begin() + 2, command.end()}, told_by_training);
  const config::CheckpointConfig& folders = options.config.checkpoint;
  if (folders.save.empty() || folders.load.empty())
    problems.add(
        "--array: each job would start from scratch; give --save FOLDER, and --load with the same folder or the one "
        "that the first job begins from");
}

}  // namespace

size_t num_submit_option_words(const Words& arguments) {
  BatchJob job;
  SubmitFlags flags;
  OptionTable table("espalier submit", "");
  add_rows(table, job, flags);
  return launch::num_option_words(table, arguments);
}

int submit_main(const Words& arguments) {
  BatchJob job;
  SubmitFlags flags;
  OptionTable table("espalier submit",
                    "Writes a job script for SLURM or PBS and submits it: espalier submit OPTIONS train gpt ...");
  add_rows(table, job, flags);
  table.unknown_options_mean("options of the run come after its command: espalier submit OPTIONS train gpt OPTIONS");
  table.known_elsewhere({"-N", "--num-nodes"}, "--nodes");
  table.known_elsewhere({"-n", "--ntasks"}, "--nodes times --nproc-per-node");
  table.known_elsewhere({"-t", "--walltime", "--time-limit"}, "--time");
  table.known_elsewhere({"-p"}, "--partition");
  table.known_elsewhere({"-A"}, "--account");
  table.known_elsewhere({"--gres", "--gpus", "--gpus-per-task"}, "--gpus-per-node");
  const auto own = arguments.begin() + static_cast<std::ptrdiff_t>(launch::num_option_words(table, arguments));
  Problems problems;
  if (!table.parse({arguments.begin(), own}, problems)) return 0;
  job.command = canonical_words({own, arguments.end()});
  if (job.command.empty())
    problems.add("nothing to run: after the options comes what the ranks run, such as train gpt ...");
  else if (!runs_as_ranks(job.command[0]))
    problems.add("the ranks cannot run ", job.command[0],
                 ": it is not a command of Espalier (train gpt ..., pretrain_gpt.py ...); whose script is written is ",
                 "chosen by --scheduler");
  const bool trains = job.command.size() > 1 && job.command[0] == "train";
  if (trains && job.array_size > 1) check_chain(job.command, problems);
  problems.raise();
  if (trains && flags.check)
    if (const int code = check_training(
            job.command, {.num_nodes = job.num_nodes, .ranks_of_node = job.ranks_per_node, .runs_here = false});
        code != 0)
      return code;
  job.program = path_beside_this_program("espalier");
  const std::string script = launch::batch_script(job);
  std::string path = flags.script, id;
  if (path.empty()) path = job.job_name + (job.scheduler == Scheduler::kSlurm ? ".sbatch" : ".pbs");
  if (!flags.dry_run) {
    write_file_atomically(path, script);
    id = submit(job, path);
  }
  if (flags.json) {
    nlohmann::json object = {{"script", script}};
    if (!flags.dry_run) object.update({{"path", path}, {"job_id", id}});
    std::printf("%s\n", object.dump().c_str());
  } else {
    std::printf("%s%s", flags.dry_run ? script.c_str() : id.c_str(), flags.dry_run ? "" : "\n");
  }
  if (!flags.dry_run) log_info("submitted ", path, " as job ", id);
  return 0;
}

}  // namespace espalier
