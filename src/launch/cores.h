// The cores that a rank may use where several ranks share a machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/environment.h"

namespace espalier::launch {

struct CoreShare {
  int num_threads = 1;
  std::vector<int> cpus;    // to run on; empty: stay on whatever this process may use
  std::string explanation;  // "4 of 16 cores, 4 ranks on this machine"
};

// Contiguous, nearly equal parts of `usable` (in the order in which neighbours share caches); one thread and no fixed
// core where there are more ranks than cores.
CoreShare share_of_cores(const std::vector<int>& usable, int64_t local_rank, int64_t local_world_size);

// Of this process. A launcher that has bound the rank to cores of its own has divided already (SLURM's --cpu-bind,
// mpirun's --bind-to). OMP_NUM_THREADS, where it is set, is the number of threads and leaves the cores alone.
CoreShare share_of_cores(const RankEnvironment& place);

// The time of how many cores the control groups grant this process, the tightest of them; nothing where none limits it.
// `root` stands before /proc and /sys.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

// Whether `num_threads` more threads find cores free on this machine: false where other programs keep so many busy that
// they would have to share. Looks for 20 ms at how many threads run (/proc/stat, below `root`) and takes the quietest
// moment; true where the system does not say.
bool has_free_cores(int64_t num_threads, const std::filesystem::path& root = "/");

// Binds this process and the threads that it will start. To be called before there are others.
void bind_to_cores(const CoreShare& share);

}  // namespace espalier::launch
