// Machines that should be left out of a run, from what its launchers and the scheduler recorded of failures.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/failure.h"
#include "watch/job_records.h"

namespace espalier::watch {

enum class Cause {
  kMachineLost,  // its launcher went away
  kDevice,       // a GPU, its memory, its link or its driver
  kHang,
  kKilled,    // SIGKILL from outside: memory, or a person
  kBusError,  // SIGBUS
  kNetwork,
  kStorage,  // a disk that is full, a quota, an I/O error: of all machines alike
  kProgram,  // an error of the run's own: data, options, code
  kPeer,     // a consequence of another's failure
  kStopped,  // SIGTERM and the like: somebody asked for it
};
const char* to_string(Cause cause);

Cause cause_of(const launch::Failure& failure);

// The first cause of a start that failed.
struct Crash {
  launch::Failure failure;
  std::string job;  // the scheduler's number; empty without one
};

struct Blame {
  std::string host;
  std::vector<std::string> evidence;  // a line for each failure
};

// `crashes` are in the order of time. A machine is named when a device of it
// has failed once by its own word, or when it is the one that failed at least twice, and more than twice as often as
// any other: failures that are spread over machines have another cause. A rank that died when SLURM ended its job says
// nothing of a machine; that a machine failed under a job counts, whether or not a launcher could write of it.
std::vector<Blame> machines_to_leave_out(const std::vector<Crash>& crashes, const std::vector<JobRecord>& jobs = {});

// Of each line of crashes.jsonl in the run's folder; lines that are not whole are left out.
std::vector<Crash> read_crashes(const std::string& run_folder);

}  // namespace espalier::watch
