// Job scripts for SLURM and PBS that start the ranks of one command: pure functions from a description to text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace espalier::launch {

enum class Scheduler { kSlurm, kPbs };

struct BatchJob {
  Scheduler scheduler = Scheduler::kSlurm;
  std::string job_name = "espalier";
  int64_t num_nodes = 1, ranks_per_node = 1;
  std::optional<int64_t> cpus_per_rank, gpus_per_node;
  std::string time;  // H:MM:SS; SLURM also takes its other forms
  std::string partition, account, qos, constraint, output;
  int64_t array_size = 0;        // number of jobs, one after another; 0: one job
  std::string dependency;        // as the scheduler writes it: afterany:123
  std::string exclude;           // machines: n[01-03],x2
  int64_t spare_nodes = 0;       // PBS: asked for in addition, to make up for excluded ones
  int64_t signal_seconds = 300;  // before the end, when the ranks are to save and stop; 0: not
  bool requeue = true;
  int64_t max_restarts = 0;             // above 0: one espalier launch on each machine, which starts ranks again
  std::vector<std::string> directives;  // more of the scheduler's options, as written after #SBATCH or #PBS
  std::vector<std::string> setup;       // lines of shell before the ranks start (module load ...)
  std::string program;                  // path of espalier
  std::vector<std::string> command;     // what each rank runs: train gpt ...
};

// UserError (exit code 2) for what the scheduler cannot do.
std::string batch_script(const BatchJob& job);

// Seconds of "90" (minutes), "1:30:00", "2-12:00:00"; nothing if it is not a length of time.
std::optional<int64_t> parse_time_limit(const std::string& text);

}  // namespace espalier::launch
