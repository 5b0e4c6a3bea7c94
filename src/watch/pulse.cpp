#include "watch/pulse.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace espalier::watch {
namespace {

constexpr double kStepsOfPatience = 20;

std::string place_of(const RunSight& sight) {
  if (sight.step < 0) return "before its first step";
  return concat("after step ", format_count(sight.step),
                sight.num_steps ? concat(" of ", format_count(*sight.num_steps)) : std::string());
}

std::string with_detail(const RunSight& sight) { return sight.detail.empty() ? "" : concat(" (", sight.detail, ")"); }

}  // namespace

void Pulse::follow(const RunSight& sight, double now, bool is_queued) {
  const bool is_first = !std::exchange(has_looked_, true);
  if (is_first || is_queued) changed_ = gained_ = now;
  if (sight.life != life_) changed_ = now;
  life_ = sight.life;
  if (is_first || sight.step > furthest_) {
    furthest_ = lowest_ = sight.step;
    starts_ = sight.starts;
    gained_ = now;
  }
  lowest_ = std::min(lowest_, sight.step);
  if (!sight.is_paused)
    paused_since_ = -1;
  else if (paused_since_ < 0)
    paused_since_ = now;
  if (!sight.has_died)
    dead_since_ = -1;
  else if (dead_since_ < 0)
    dead_since_ = now;
}

std::string Pulse::look(const RunSight& sight, double now, bool is_queued) {
  follow(sight, now, is_queued);
  const double silent = now - changed_;
  switch (sight.last_word) {
    case LastWord::kFinished: return "";
    case LastWord::kFailed:
      if (sight.end_is_told || silent < patience_.after_end) return "";
      return concat("the run has failed ", place_of(sight), with_detail(sight),
                    ", and nothing has started it again for ", format_duration(silent));
    case LastWord::kStopped:
      if (silent < patience_.seconds) return "";
      return concat("the run stopped ", place_of(sight), with_detail(sight), " and has not continued for ",
                    format_duration(silent));
    case LastWord::kNone:
    case LastWord::kStart: return silence(sight, now);
  }
  return "";
}

std::string Pulse::silence(const RunSight& sight, double now) const {
  if (dead_since_ >= 0 && now - dead_since_ >= patience_.after_death)
    return concat("the process that answers for the run on this machine is gone, ", place_of(sight),
                  ", and recorded no end: it was killed, or ran out of memory");
  const double patience = std::max(patience_.seconds, kStepsOfPatience * sight.step_seconds);
  if (paused_since_ >= 0) {
    if (now - paused_since_ < patience) return "";
    return concat("the run has been paused for ", format_duration(now - paused_since_), ", ", place_of(sight),
                  ": espalier ctl RUN resume continues it");
  }
  if (now - changed_ >= patience)
    return concat("no step, record or checkpoint for ", format_duration(now - changed_), ", ", place_of(sight));
  // A run that went back gains nothing until it has done those steps again.
  const double again = 2 * sight.step_seconds * static_cast<double>(furthest_ - lowest_);
  return now - gained_ >= patience + again ? gains_nothing(sight, now) : "";
}

std::string Pulse::gains_nothing(const RunSight& sight, double now) const {
  const int64_t starts = sight.starts - starts_;
  const std::string what = starts > 1 ? concat("it has started ", format_count(starts), " times since")
                           : starts > 0
                               ? "it has started once since"
                               : "it has not started again since, but records events or writes files (events.jsonl)";
  return concat("the run has gained no step beyond ", format_count(furthest_), " for ", format_duration(now - gained_),
                ": ", what);
}

}  // namespace espalier::watch
