// The secret of a job, which a peer has to prove before our rendezvous store talks to it.
//
// It comes from, in this order: ESPALIER_JOB_SECRET; the file named by ESPALIER_JOB_SECRET_FILE; the user's own key in
// ${XDG_CONFIG_HOME:-~/.config}/espalier/job-key, made on first use, from which each job's secret is derived. So ranks
// that srun, mpirun or a person starts on machines that share the home folder need no setting. A file that others may
// read is refused. docs/launch.md says what this protects and what it does not.
#pragma once

#include <string>

namespace espalier::launch {

inline constexpr const char* kSecretVariable = "ESPALIER_JOB_SECRET";
inline constexpr const char* kSecretFileVariable = "ESPALIER_JOB_SECRET_FILE";

// `run_id` sets the jobs of one user apart. UserError if no secret can be had.
std::string job_secret(const std::string& run_id);

// A fresh one: 64 hexadecimal digits.
std::string new_secret();

}  // namespace espalier::launch
