// What the scheduler itself recorded of the jobs of a run: why a job ended, and which machine failed under it.
//
// SLURM's accounting, asked by `sacct`. It tells a rank that was killed with its job (preempted, cancelled, out of
// time, out of the memory that it asked for) from one that its machine killed, and of a machine that died with
// everything that could have written of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::watch {

struct JobRecord {
  std::string id;                  // the number without array and step
  std::string state;               // "NODE_FAIL", "PREEMPTED"; of "CANCELLED by 1000" the first word
  std::string exit_code;           // "0:9"
  std::vector<std::string> nodes;  // of the job
  std::string failed_node;         // by SLURM's word; empty where it names none
  std::string reason;              // "None" and the like included
  double end = 0;                  // seconds since 1970; 0: it has not ended
};

// What the command of job_records prints; lines of another form are left out.
std::vector<JobRecord> parse_sacct(const std::string& text);

// The jobs of that name of the last 90 days. A UserError where sacct does not answer, as
// where no accounting is kept.
std::vector<JobRecord> job_records(const std::string& job_name);

// "job 12 NODE_FAIL, exit code 0:9, machine n3, reason Node failure"
std::string describe(const JobRecord& record);

}  // namespace espalier::watch
