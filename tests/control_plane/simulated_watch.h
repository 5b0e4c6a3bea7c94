// `espalier watch` over a simulated run: its judge (watch/judge.h) looks every half minute at what the run records,
// until long after the last launcher has ended. What must hold:
//   no alarm while the run gains steps, has ended well, or has lately done either or been told of in another alert
//   one alarm, in time, where it gains none, where nothing follows its end, and where all that ran it is dead
#pragma once

#include <functional>
#include <string>

#include "launch/launcher.h"
#include "tests/control_plane/simulated_training.h"
#include "watch/judge.h"
#include "watch/sight.h"

namespace espalier::control_plane {

class SimulatedWatch {
 public:
  SimulatedWatch(const SimulatedTraining& training, double patience_seconds,
                 std::function<void(const std::string&)> violate);

  void note_event(const std::string& event);  // of the ranks: "start", "stop", "end"
  void note_incident(const launch::Incident& incident);
  void look(double now);
  // Of a run that has come to its end or was given up: it was told of, once.
  void check_end() const;
  // It has been long enough for an alarm since then.
  double seconds_to_tell() const { return patience_ + 2 * kLook + seconds_again(); }
  int64_t num_alarms() const { return num_alarms_; }

  static constexpr double kLook = 30;

 private:
  enum class State { kLives, kStopped, kFinished, kFailed };

  void record(const std::string& event, const std::string& detail);
  double seconds_again() const;
  void check(bool is_open, bool is_news, double now);

  const SimulatedTraining& training_;
  double patience_;
  std::function<void(const std::string&)> violate_;
  watch::Judge judge_;
  watch::Incidents incidents_;
  watch::RunSight sight_;
  uint64_t num_records_ = 0;
  // What is true, by what the run does and not by what it records.
  State state_ = State::kLives;
  bool is_told_ = false, has_changed_ = false, may_alarm_again_ = true;
  int64_t furthest_ = 0, num_alarms_ = 0;
  double gained_ = 0, changed_ = 0;
};

}  // namespace espalier::control_plane
