// What each rank of one start does when nothing disturbs it: it reaches its place by so much work (group_clock.h), and
// says so in signs of progress, as real ones do (base/whereabouts.h). All of it is drawn from a seed.
//
// Each part of the run (loading, training of a step, its evaluation, its save) is some pieces of a rank's own work, for
// which ranks take different times, and then a wait for the others.
#pragma once

#include <cstdint>

#include "base/whereabouts.h"
#include "tests/control_plane/fibers.h"

namespace espalier::control_plane {

struct Place {
  bool is_open = true;  // the rank says where it is
  RunPhase phase = RunPhase::kStart;
  int64_t step = 0, micro_batch = -1;
  Waiting waiting = Waiting::kNothing;
  const char* waits_for = "";
  Nanoseconds begin = 0, end = 0;  // of this piece, in work
  Nanoseconds meeting = 0;         // at the end of this part
  uint64_t progress = 0;           // signs of it before this piece, one for each; only its order matters
};

class Timeline {
 public:
  uint64_t seed = 0;
  double load_seconds = 1, step_seconds = 1;
  int64_t first_step = 0, num_steps = 0;  // done before; at the end of the run
  int64_t steps_each_save = 1, steps_each_evaluation = 1;
  double start_share = 0;                       // of the time to load: until all are connected
  double save_share = 0, evaluation_share = 0;  // of the time of a step that has one

  Place place(int64_t rank, Nanoseconds work) const;
  // In that phase of that step (of kLoad: 0), that share of its own work there or, `with_wait`, of all of it.
  Nanoseconds work_in(int64_t rank, int64_t step, RunPhase phase, double share, bool with_wait) const;
  // Its own work in phase start, before it waits for the others to come.
  double seconds_to_start(int64_t rank) const;
  bool saves(int64_t step) const { return save_share > 0 && step % steps_each_save == 0; }
  bool evaluates(int64_t step) const { return evaluation_share > 0 && step % steps_each_evaluation == 0; }

 private:
  struct Part;
  double draw(int64_t rank, int64_t step, RunPhase phase) const;
  Part part_of(int64_t step, RunPhase phase) const;
  Place in_part(const Part& part, int64_t rank, double seconds) const;
};

}  // namespace espalier::control_plane
