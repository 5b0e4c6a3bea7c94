#include "tests/control_plane/simulated_watch.h"

#include <algorithm>
#include <utility>

#include "base/format.h"

namespace espalier::control_plane {
namespace {

constexpr double kAfterEnd = 120;  // for what starts a run again that has failed (docs/watch.md)

}  // namespace

SimulatedWatch::SimulatedWatch(const SimulatedTraining& training, double patience_seconds,
                               std::function<void(const std::string&)> violate)
    : training_(training),
      patience_(patience_seconds),
      violate_(std::move(violate)),
      judge_({.patience = {.seconds = patience_seconds}}) {
  sight_.folder = "run";
  sight_.num_steps = training.scenario().num_steps;
}

// A run that went back may take as long as it likes for what it does again.
double SimulatedWatch::seconds_again() const {
  return 2 * training_.scenario().step_seconds * static_cast<double>(furthest_);
}

void SimulatedWatch::record(const std::string& event, const std::string& detail) {
  ++num_records_;
  has_changed_ = true;
  watch::read_event({.time = 0, .event = event, .detail = detail, .step = -1}, sight_);
}

void SimulatedWatch::note_event(const std::string& event) {
  record(event, "");
  if (event == "start") state_ = State::kLives;
  if (event == "stop") state_ = State::kStopped;
  if (event == "end") state_ = State::kFinished;
}

void SimulatedWatch::note_incident(const launch::Incident& incident) {
  if (incident.run_folder.empty()) return;
  const bool is_failure = incident.kind == launch::Incident::Kind::kFailure;
  record(is_failure ? "failure" : "hang", incident.what);
  if (is_failure) state_ = incident.starts_again ? State::kLives : State::kFailed;
  record("alerted", concat(is_failure ? "failure" : "hang", ": ", incident.what));
  is_told_ = is_failure && !incident.starts_again;
}

void SimulatedWatch::look(double now) {
  const int64_t step = training_.recorded_step();
  if (step > furthest_) furthest_ = step, gained_ = now, may_alarm_again_ = true;
  if (std::exchange(has_changed_, false) || step != sight_.step) changed_ = now, may_alarm_again_ = true;
  sight_.step = step;
  sight_.step_seconds = step > 0 ? training_.scenario().step_seconds : 0;
  sight_.newest_checkpoint = training_.on_disk() > 0 ? training_.on_disk() : -1;
  sight_.life = num_records_ * 1'000'003 + static_cast<uint64_t>(1000 * (step + 1) + training_.on_disk());
  watch::WatchSight all;
  all.runs = {sight_};
  const std::vector<watch::Trouble> troubles = judge_.look(all, now), news = incidents_.update(troubles);
  if (troubles.size() > 1) violate_("the watch finds more than one incident");
  check(!troubles.empty(), !news.empty(), now);
}

void SimulatedWatch::check(bool is_open, bool is_news, double now) {
  const double patience = std::max(patience_, 20 * sight_.step_seconds);
  double least = patience, most = patience, since = gained_;
  if (state_ == State::kStopped) since = changed_;
  if (state_ == State::kFailed) since = changed_, least = most = kAfterEnd;
  if (state_ == State::kLives) most += seconds_again();
  const bool may_be = state_ != State::kFinished && !(state_ == State::kFailed && is_told_);
  if (is_open && (!may_be || now - since < least - kLook))
    violate_(concat("an alarm at ", now, " s of a run whose last step was gained at ", gained_));
  if (!is_open && may_be && now - since > most + 2 * kLook)
    violate_(concat("no alarm at ", now, " s of a run whose last step was gained at ", gained_));
  if (!is_news) return;
  ++num_alarms_;
  if (!std::exchange(may_alarm_again_, false)) violate_(concat("a second alarm at ", now, " s of the same"));
}

void SimulatedWatch::check_end() const {
  const bool is_well = state_ == State::kFinished && training_.is_complete();
  if (!is_well && !is_told_ && num_alarms_ == 0) violate_("the run has ended without an alarm");
}

}  // namespace espalier::control_plane
