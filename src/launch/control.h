// The requests of `espalier ctl` to a run, answered by the launcher of its ranks (or by a run that has none) from a
// thread of its own, whatever the ranks' main threads do.
//
//   Control control({.board = board, ...});        // of one round of ranks
//   control.set_pids(group.pids());                // whenever they may have changed
//
// status and dump report on the ranks of this machine, and kill ends them. save, stop, pause, resume and log-level are
// for the whole run, and answered where its first rank is: that one tells the others, between two steps.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/whereabouts.h"
#include "launch/control_socket.h"

namespace espalier::launch {

struct ControlOptions {
  const WhereaboutsBoard& board;
  int64_t node = 0, first_rank = 0, num_local_ranks = 1, world_size = 1;
  std::string first_host;      // where the first rank is
  std::function<void()> stop;  // the run saves and ends
  std::function<void()> kill;  // the ranks of this machine end at once
};

class Control {
 public:
  explicit Control(ControlOptions options);

  // By local rank; -1 for those that have ended.
  void set_pids(const std::vector<pid_t>& pids);

  // {"command": "status"} and so on; UserError for what cannot be done. Any thread.
  ControlAnswer answer(const ControlMessage& request) const;

 private:
  ControlMessage status() const;
  ControlMessage dump() const;
  void need_first_rank(const std::string& command) const;
  std::vector<pid_t> pids() const;

  ControlOptions options_;
  mutable std::mutex mutex_;
  std::vector<pid_t> pids_;
  ControlServer server_;  // last: its thread uses the others
};

}  // namespace espalier::launch
