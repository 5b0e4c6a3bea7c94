// The commands of a batch system, as watch uses them.
#pragma once

#include <string>
#include <vector>

#include "watch/chain.h"

namespace espalier::watch {

struct CommandOutput {
  int exit_code = 0;
  std::string text, errors;  // what it printed
};

// Of a command for sh, which is ended after a minute.
CommandOutput output_of(const std::string& command);

// The user's jobs of that name. A UserError where the scheduler does not answer.
std::vector<QueuedJob> queued_jobs(const std::string& scheduler, const std::string& job_name);

// Submits the script, to start after those jobs, without those machines (SLURM only), and returns the new job's number.
std::string submit_next(const std::string& scheduler, const std::string& script, const std::vector<std::string>& after,
                        const std::vector<std::string>& without);

}  // namespace espalier::watch
