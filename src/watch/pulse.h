// Whether a run is healthy: whether it gains steps, whatever a job's or a process's state says.
//
// A pure rule over what looks find and a clock that never jumps: the wall clock, and the times that files and records
// carry, mean nothing to it.
#pragma once

#include <cstdint>
#include <string>

#include "watch/sight.h"

namespace espalier::watch {

struct Patience {
  double seconds = 1800;    // without any sign of life, or without a step gained
  double after_end = 120;   // after a failure, for what starts the run again
  double after_death = 60;  // of what answers for the run
};

class Pulse {
 public:
  explicit Pulse(Patience patience) : patience_(patience) {}

  // What is wrong, for people; empty: nothing. `now`: seconds. `is_queued`: a job that continues the run waits for its
  // turn, which may take as long as it likes.
  std::string look(const RunSight& sight, double now, bool is_queued);

 private:
  void follow(const RunSight& sight, double now, bool is_queued);
  std::string silence(const RunSight& sight, double now) const;
  std::string gains_nothing(const RunSight& sight, double now) const;

  Patience patience_;
  bool has_looked_ = false;
  uint64_t life_ = 0;
  int64_t furthest_ = -1, lowest_ = -1;  // step; since the furthest was reached
  int64_t starts_ = 0;                   // when it was
  double changed_ = 0, gained_ = 0, dead_since_ = -1, paused_since_ = -1;
};

}  // namespace espalier::watch
