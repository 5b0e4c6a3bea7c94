// Finds the rank that a run hangs at, from what the ranks say of themselves (base/whereabouts.h) and what the kernel
// says of their processes.
//
// Ranks that wait for others are not at fault. Of those that do not wait:
//   stopped (SIGSTOP, a debugger), also one that waited for something outside the run: after max(5 s, 5 x the 99th
//     percentile of their stretches without progress), and 5 s after it was first seen stopped: before that it may have
//     waited for long, and others may be stopped that have not been seen so yet
//   asleep though not on a disk, using no processor time: the same while training or evaluating, else 15 s or so
//   waiting for a disk or a file system, also by a thread of its own, using no processor time: max(60 s, 5 x the 99th
//     percentile, 3 x the longest stretch so far)
//   busy: the same, once a hundred stretches are known; before that, only once the run was told to end, from then on
// If all ranks of the run are here and each waits for another, those that have come least far are at fault, after
// max(30 s, 5 x, 3 x). Where every rank here is stopped and none has ended, somebody has suspended the run: it says so,
// once until a rank is seen to go on, and nothing is ended unless the run was told to end 60 s ago.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/whereabouts.h"
#include "launch/internal/process_state.h"

namespace espalier::launch {

struct RankSight {
  int64_t rank = 0;
  pid_t pid = -1;  // -1: it has ended
  Sight sight;
  char state = 'R';                // of the process, as in /proc; 'T' stopped, 'D' any thread waits for a disk
  double seconds_still = 0;        // since it made progress, or went on after a stop; also before it opened its slot
  double seconds_without_cpu = 0;  // all of its threads
  double seconds_stopped = 0;      // since it was first seen so
};

struct Hang {
  std::vector<size_t> culprits;  // indices into the sights
  std::string text;              // names rank, process, what it was doing, and who waits for it
  bool is_suspended = false;     // all ranks here are stopped
};

struct HangRules {
  double shortest = 5;        // seconds; 0: nothing is ever found
  bool has_all_ranks = true;  // no other machine takes part
  double asleep_elsewhere = 15, disk = 60, busy = 60, all_wait = 30, told_to_end = 60;
  int64_t stretches_to_know = 100;

  // How long a rank may make no progress once the run was told to end, at least.
  double bound_at_end() const { return std::max(shortest, told_to_end); }
};

// Pure: what these sights mean. `seconds_since_told`: of a run that was told to end.
std::optional<Hang> find_hang(const std::vector<RankSight>& ranks, const HangRules& rules,
                              std::optional<double> seconds_since_told = {});

// By what the ranks are looked at.
struct HangSenses {
  std::function<double()> now;  // seconds, of a clock that nobody sets
  std::function<Sight(int64_t local_rank)> sight;
  std::function<internal::ProcessState(pid_t)> state;

  static HangSenses of(const WhereaboutsBoard& board);  // which outlives them
};

// Looks at the ranks of one round again and again. One thread.
class HangWatch {
 public:
  HangWatch(HangSenses senses, int64_t first_rank, const HangRules& rules);
  // `pids` by local rank, -1 for those that have ended. Does its work once a quarter of a second at most.
  std::optional<Hang> look(const std::vector<pid_t>& pids, std::optional<double> seconds_since_told = {});
  const HangRules& rules() const { return rules_; }

 private:
  struct Memory {  // of a rank
    uint64_t progress = 0;
    double progress_at = 0, cpu_at = 0;
    uint64_t cpu_ticks = 0;
    std::optional<double> stopped_at;
  };
  HangSenses senses_;
  int64_t first_rank_;
  HangRules rules_;
  std::vector<Memory> memories_;
  double last_look_ = -1;
  bool said_suspended_ = false;
};

}  // namespace espalier::launch
