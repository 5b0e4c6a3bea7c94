// How far the ranks of one start are, in time of their work: all of them meet at the end of each part (loading, a step,
// an evaluation, a save) and go on together, so that a rank that is held up keeps the others there.
//
//   GroupClock clock(num_ranks);
//   clock.begin(now);                  // all are there
//   clock.freeze(rank, now, meeting);  // it does nothing from now on; all meet next after `meeting` of work
//   if (clock.thaw(rank, now)) ...     // it goes on, and with it, as nobody else is frozen, all
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/control_plane/fibers.h"

namespace espalier::control_plane {

class GroupClock {
 public:
  void set_num_ranks(int64_t count) { own_.resize(static_cast<size_t>(count)); }
  int64_t num_ranks() const { return static_cast<int64_t>(own_.size()); }
  bool has_begun() const { return origin_.has_value(); }
  void begin(Nanoseconds now) { origin_ = now; }
  bool is_frozen(int64_t rank) const { return own_[static_cast<size_t>(rank)].is_frozen; }
  bool any_frozen() const { return num_frozen_ > 0; }
  int64_t num_frozen() const { return num_frozen_; }
  void freeze(int64_t rank, Nanoseconds now, Nanoseconds meeting);
  bool thaw(int64_t rank, Nanoseconds now);

  // Once it has begun: how much all have done, and that rank, which may have come to the next meeting before others.
  Nanoseconds work(Nanoseconds now) const;
  Nanoseconds work_of(int64_t rank, Nanoseconds now) const;
  // When that rank had done so much, in this part.
  Nanoseconds since(int64_t rank, Nanoseconds work, Nanoseconds now) const;
  // When so much is done by all, unless somebody is frozen.
  Nanoseconds time_of(Nanoseconds work) const { return *origin_ + work; }
  // What the last meeting was late by, once all went on from it.
  Nanoseconds delay() const { return delay_; }

 private:
  struct Own {  // since the part began in which somebody was frozen
    Nanoseconds work = 0, since = 0;
    bool is_frozen = false;
  };
  bool is_disturbed(Nanoseconds now) const { return num_frozen_ > 0 || now < disturbed_until_; }

  std::optional<Nanoseconds> origin_;
  std::vector<Own> own_;
  int64_t num_frozen_ = 0;
  Nanoseconds least_ = 0;  // of those that are frozen
  Nanoseconds meeting_ = 0, disturbed_until_ = 0, delay_ = 0;
};

}  // namespace espalier::control_plane
