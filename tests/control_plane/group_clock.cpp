#include "tests/control_plane/group_clock.h"

#include <algorithm>

namespace espalier::control_plane {
namespace {

constexpr Nanoseconds kBeforeMeeting = 1000;  // who has come to a meeting has not begun with what follows

}  // namespace

void GroupClock::freeze(int64_t rank, Nanoseconds now, Nanoseconds meeting) {
  if (origin_) {
    if (!is_disturbed(now)) {
      for (Own& own : own_) own.work = now - *origin_, own.since = now;
      meeting_ = meeting;
    }
    Own& own = own_[static_cast<size_t>(rank)];
    own.work = work_of(rank, now), own.since = now;
    least_ = num_frozen_ > 0 ? std::min(least_, own.work) : own.work;
  }
  own_[static_cast<size_t>(rank)].is_frozen = true;
  ++num_frozen_;
}

bool GroupClock::thaw(int64_t rank, Nanoseconds now) {
  Own& thawed = own_[static_cast<size_t>(rank)];
  thawed.is_frozen = false, thawed.since = now;
  if (--num_frozen_ > 0) {
    least_ = meeting_;
    for (const Own& own : own_)
      if (own.is_frozen) least_ = std::min(least_, own.work);
    return false;
  }
  if (!origin_) return true;
  disturbed_until_ = now;
  for (const Own& own : own_) disturbed_until_ = std::max(disturbed_until_, own.since + meeting_ - own.work);
  delay_ = disturbed_until_ - meeting_ - *origin_;
  origin_ = disturbed_until_ - meeting_;
  return true;
}

Nanoseconds GroupClock::work(Nanoseconds now) const { return num_frozen_ == 0 ? now - *origin_ : least_; }

Nanoseconds GroupClock::since(int64_t rank, Nanoseconds work, Nanoseconds now) const {
  if (!is_disturbed(now)) return *origin_ + work;
  const Own& own = own_[static_cast<size_t>(rank)];
  return own.since + work - own.work;
}

Nanoseconds GroupClock::work_of(int64_t rank, Nanoseconds now) const {
  if (!is_disturbed(now)) return now - *origin_;
  const Own& own = own_[static_cast<size_t>(rank)];
  return own.is_frozen ? own.work : std::min(own.work + now - own.since, meeting_ - kBeforeMeeting);
}

}  // namespace espalier::control_plane
