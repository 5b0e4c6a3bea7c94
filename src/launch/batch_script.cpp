#include "launch/batch_script.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/shell.h"
#include "launch/internal/number.h"
#include "launch/nodelist.h"

namespace espalier::launch {
namespace {

using Words = std::vector<std::string>;

class Script {
 public:
  explicit Script(std::string mark) : mark_(std::move(mark)) { line("#!/bin/bash"); }
  template <class... Parts>
  void line(const Parts&... parts) {
    text_ += concat(parts...) + "\n";
  }
  template <class... Parts>
  void directive(const Parts&... parts) {
    line(mark_, " ", parts...);
  }
  void directive_if(const std::string& name, const std::string& value) {
    if (!value.empty()) directive(name, value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string mark_, text_;
};

std::string command_line(const Words& words) {
  Words quoted;
  for (const std::string& word : words) quoted.push_back(shell_word(word));
  return join(quoted, " ");
}

bool has_flag(const Words& command, const std::string& name) {
  return std::any_of(command.begin(), command.end(), [&](std::string word) {
    std::replace(word.begin(), word.end(), '_', '-');
    return word == name || word.starts_with(name + "=");
  });
}

// One launcher per machine; all meet on the first one. `nodes`, `head`, `port` and `id` are shell expressions.
std::string launch_line(const BatchJob& job, const std::string& nodes, const std::string& id) {
  return concat(shell_word(job.program), " launch --nnodes ", nodes, " --nproc-per-node ", job.ranks_per_node,
                " --rdzv-backend c10d --rdzv-endpoint \"$MASTER_ADDR:$MASTER_PORT\" --rdzv-id ", id, " --max-restarts ",
                job.max_restarts, " ", command_line(job.command));
}

void add_slurm_directives(const BatchJob& job, Script& script) {
  const bool launches = job.max_restarts > 0;
  script.directive("--job-name=", job.job_name);
  script.directive("--nodes=", job.num_nodes);
  script.directive("--ntasks-per-node=", launches ? 1 : job.ranks_per_node);
  if (job.cpus_per_rank) script.directive("--cpus-per-task=", *job.cpus_per_rank * (launches ? job.ranks_per_node : 1));
  if (job.gpus_per_node) script.directive("--gpus-per-node=", *job.gpus_per_node);
  script.directive_if("--time=", job.time);
  script.directive_if("--partition=", job.partition);
  script.directive_if("--account=", job.account);
  script.directive_if("--qos=", job.qos);
  script.directive_if("--constraint=", job.constraint);
  const std::string pattern = job.array_size > 0 ? "%x-%A_%a.out" : "%x-%j.out";
  script.directive("--output=", job.output.empty() ? pattern : job.output);
  script.directive("--open-mode=append");
  if (job.array_size > 0) script.directive("--array=1-", job.array_size, "%1");
  script.directive_if("--dependency=", job.dependency);
  script.directive_if("--exclude=", job.exclude);
  if (job.signal_seconds > 0) script.directive("--signal=USR1@", job.signal_seconds);
  script.directive(job.requeue ? "--requeue" : "--no-requeue");
  for (const std::string& directive : job.directives) script.directive(directive);
}

std::string slurm_script(const BatchJob& job) {
  Script script("#SBATCH");
  add_slurm_directives(job, script);
  script.line("");
  for (const std::string& line : job.setup) script.line(line);
  if (job.cpus_per_rank) {
    script.line("# srun does not take it from the job since 22.05");
    script.line("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK");
  }
  script.line(
      "# --wait: the ranks of a job end within a minute of each other; --kill-on-bad-exit: or at once, if one fails");
  const std::string srun = "srun --wait=60 --kill-on-bad-exit=1 ";
  if (job.max_restarts == 0) {
    script.line("exec ", srun, shell_word(job.program), " ", command_line(job.command));
    return script.text();
  }
  script.line("export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)");
  script.line("export MASTER_PORT=$((15000 + SLURM_JOB_ID % 10000))");
  script.line("exec ", srun, launch_line(job, "\"$SLURM_NNODES\"", "\"$SLURM_JOB_ID\""));
  return script.text();
}

std::string pbs_walltime(const std::string& time) {
  if (time.empty()) return "";
  const std::optional<int64_t> seconds = parse_time_limit(time);
  ESPALIER_CHECK(seconds, time);
  return format_printf("%02ld:%02ld:%02ld", static_cast<long>(*seconds / 3600), static_cast<long>(*seconds / 60 % 60),
                       static_cast<long>(*seconds % 60));
}

void add_pbs_directives(const BatchJob& job, Script& script) {
  const auto per_node = [](const char* name, const std::optional<int64_t>& count, int64_t times) {
    return count ? concat(":", name, "=", *count * times) : std::string();
  };
  script.directive("-N ", job.job_name);
  script.directive("-l select=", job.num_nodes + job.spare_nodes,
                   per_node("ncpus", job.cpus_per_rank, job.ranks_per_node), per_node("ngpus", job.gpus_per_node, 1),
                   job.constraint.empty() ? "" : ":" + job.constraint);
  script.directive("-l place=scatter");
  script.directive_if("-l walltime=", pbs_walltime(job.time));
  script.directive_if("-q ", job.partition);
  script.directive_if("-A ", job.account);
  script.directive("-j oe");
  script.directive_if("-o ", job.output);
  if (job.array_size > 0) script.directive("-J 1-", job.array_size, "%1");
  script.directive_if("-W depend=", job.dependency);
  script.directive("-r ", job.requeue ? "y" : "n");
  for (const std::string& directive : job.directives) script.directive(directive);
}

// PBS cannot exclude machines: we ask for spare ones, and drop the bad ones from the list.
void add_pbs_hosts(const BatchJob& job, Script& script) {
  script.line("hosts=$(mktemp)");
  const std::string bad = job.exclude.empty() ? "" : join(expand_nodelist(job.exclude), "|");
  const std::string filter = bad.empty() ? "" : concat(" | grep -vE '^(", bad, ")([.]|$)'");
  script.line("awk '!seen[$1]++' \"$PBS_NODEFILE\"", filter, " | head -n ", job.num_nodes, " >\"$hosts\"");
  script.line("if [ \"$(wc -l <\"$hosts\")\" -lt ", job.num_nodes, " ]; then echo \"fewer than ", job.num_nodes,
              " usable machines\" >&2; exit 1; fi");
  script.line("export MASTER_ADDR=$(head -n 1 \"$hosts\")");
  script.line("export MASTER_PORT=$((15000 + ${PBS_JOBID%%[!0-9]*} % 10000))");
}

std::string pbs_script(const BatchJob& job) {
  if (!job.qos.empty()) throw UserError("--qos is SLURM's; PBS has queues (--partition)", ExitCode::kUsage);
  BatchJob run = job;
  const std::optional<int64_t> seconds = parse_time_limit(job.time);
  const bool trains = !job.command.empty() && job.command.front() == "train";
  // PBS sends no signal before the end: the run itself watches the time.
  if (trains && seconds && job.signal_seconds > 0 && !has_flag(job.command, "--exit-duration-in-mins")) {
    run.command.push_back("--exit-duration-in-mins");
    run.command.push_back(std::to_string(std::max<int64_t>(1, (*seconds - job.signal_seconds) / 60)));
  }
  Script script("#PBS");
  add_pbs_directives(run, script);
  script.line("");
  script.line("cd \"$PBS_O_WORKDIR\"");
  for (const std::string& line : run.setup) script.line(line);
  add_pbs_hosts(run, script);
  const bool launches = run.max_restarts > 0;
  const int64_t per_node = launches ? 1 : run.ranks_per_node;
  const int64_t depth = run.cpus_per_rank.value_or(0) * (launches ? run.ranks_per_node : 1);
  const std::string bind = depth > 0 ? concat(" --depth ", depth, " --cpu-bind depth") : "";
  script.line("exec mpiexec --hostfile \"$hosts\" -n ", run.num_nodes * per_node, " --ppn ", per_node, bind,
              " --env MASTER_ADDR=\"$MASTER_ADDR\" --env MASTER_PORT=\"$MASTER_PORT\" ",
              launches ? launch_line(run, std::to_string(run.num_nodes), "\"$PBS_JOBID\"")
                       : concat(shell_word(run.program), " ", command_line(run.command)));
  return script.text();
}

}  // namespace

std::optional<int64_t> parse_time_limit(const std::string& text) {
  std::string rest = text;
  int64_t days = 0;
  const size_t dash = text.find('-');
  if (dash != std::string::npos) {
    const auto parsed = parse_whole(text.substr(0, dash));
    if (!parsed) return std::nullopt;
    days = *parsed;
    rest = text.substr(dash + 1);
  }
  std::vector<int64_t> parts;
  for (const std::string& part : split(rest, ':')) {
    const auto parsed = parse_whole(part);
    if (!parsed) return std::nullopt;
    parts.push_back(*parsed);
  }
  const bool hours_first = dash != std::string::npos;  // SLURM: D-H, D-H:M, D-H:M:S; else M, M:S, H:M:S
  if (parts.size() > 3) return std::nullopt;
  if (!hours_first && parts.size() < 3) parts.insert(parts.begin(), 0);
  while (parts.size() < 3) parts.push_back(0);
  return ((days * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2];
}

std::string batch_script(const BatchJob& job) {
  if (!job.time.empty() && parse_time_limit(job.time).value_or(0) <= 0)
    throw UserError(concat("--time ", job.time, " is not a job length: write HOURS:MINUTES:SECONDS, such as 20:00:00, ",
                           "or DAYS-HOURS"),
                    ExitCode::kUsage);
  if (job.scheduler == Scheduler::kPbs) return pbs_script(job);
  if (job.spare_nodes > 0)
    throw UserError("--spare-nodes is for PBS; SLURM leaves out --exclude's machines itself", ExitCode::kUsage);
  return slurm_script(job);
}

}  // namespace espalier::launch
