// How simulated ranks say where they are, how they hang, and what has to come of that.
#include <signal.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "tests/control_plane/simulated_ranks.h"

namespace espalier::control_plane {
namespace {

constexpr uint64_t kLastProgress = uint64_t{1} << 40;
constexpr Nanoseconds kIntoNext = 500;  // behind the end of a piece, whatever rounding makes of it
// Seconds: between two looks of the watch at least; from when on a time without one is a pause of the launcher itself,
// and a long one (docs/launch.md).
constexpr double kBetweenLooks = 0.25, kOwnPause = 2, kLongPause = 10;

}  // namespace

launch::HangWatch SimulatedRanks::make_watch(const launch::Round& round) {
  const launch::HangRules rules = {.shortest = hang_timeout(), .has_all_ranks = round.nodes.size() == 1};
  launch::HangSenses senses;
  senses.now = [this] { return seconds_of(now()); };
  senses.sight = [this](int64_t local_rank) { return sight_of(local_rank); };
  senses.state = [this](pid_t pid) { return state_of(pid - pid_of(0)); };
  return {senses, round.first_rank, rules};
}

Place SimulatedRanks::place(int64_t local_rank) const {
  if (rank(local_rank).frozen) return rank(local_rank).frozen->place;
  Place place;
  if (group_.has_failed || group_.ends_well) {
    place.phase = group_.ends_well ? RunPhase::kExit : RunPhase::kTrain;
    place.step = training_.steps_done(group_);
    place.waiting = group_.has_failed || group_.num_kept_from_end > 0 ? Waiting::kPeers : Waiting::kNothing;
    place.waits_for = "barrier";
    place.progress = kLastProgress;
    return place;
  }
  const int64_t number = first_rank_ + local_rank;
  if (group_.clock.has_begun()) return group_.timeline.place(number, group_.clock.work_of(number, now()));
  const double own = group_.timeline.seconds_to_start(number), done = seconds_of(now() - joined_);
  place.is_open = done >= 0.3 * own;
  if (done < own) return place;
  place.waiting = Waiting::kOthers, place.waits_for = "start";
  place.progress = 1;
  return place;
}

Nanoseconds SimulatedRanks::length_of(int64_t local_rank, const Place& piece) const {
  Nanoseconds length = piece.end - piece.begin;
  for (const auto& [begin, time] : rank(local_rank).held_up)
    if (begin == piece.begin) length += time;
  return length;
}

// What it has done since it was looked at last.
void SimulatedRanks::learn(int64_t local_rank, const Place& place) {
  Rank& known = rank(local_rank);
  if (!group_.clock.has_begun() || group_.is_over() || place.phase == RunPhase::kStart) return;
  if (!known.stretches) known.stretches = std::make_unique<Stretches[]>(3 * kNumRunPhases);
  while (true) {
    const Place piece = group_.timeline.place(first_rank_ + local_rank, known.known_work);
    if (piece.progress >= place.progress) return;
    known.stretches[3 * static_cast<size_t>(piece.phase) + static_cast<size_t>(piece.waiting)].add(
        length_of(local_rank, piece));
    known.known_work = piece.end + kIntoNext;
  }
}

// What it is known for matters once somebody stands still.
Sight SimulatedRanks::sight_of(int64_t local_rank) {
  const Place place = this->place(local_rank);
  Sight sight;
  sight.is_open = place.is_open;
  if (!sight.is_open) return sight;
  sight.phase = place.phase, sight.step = place.step, sight.micro_batch = place.micro_batch;
  sight.waiting = place.waiting, sight.waits_for = place.waits_for;
  sight.progress = place.progress;
  learn(local_rank, place);
  if (!group_.clock.any_frozen() || !rank(local_rank).stretches) return sight;
  const StretchSummary known =
      rank(local_rank).stretches[3 * static_cast<size_t>(place.phase) + static_cast<size_t>(place.waiting)].summary();
  sight.num_stretches = known.num, sight.percentile_99 = known.percentile_99, sight.longest = known.longest;
  return sight;
}

launch::internal::ProcessState SimulatedRanks::state_of(int64_t local_rank) const {
  const auto now_ticks = static_cast<uint64_t>(now() / (kSecond / 100));
  if (const auto& frozen = rank(local_rank).frozen) switch (frozen->hang.kind) {
      case HangKind::kStopped: return {.state = 'T', .cpu_ticks = 1};
      case HangKind::kDisk: return {.state = 'D', .cpu_ticks = 1};
      case HangKind::kBusy: return {.state = 'R', .cpu_ticks = now_ticks};
      case HangKind::kAsleep:
      case HangKind::kExchange: return {.state = 'S', .cpu_ticks = 1};
    }
  if (place(local_rank).waiting == Waiting::kNothing) return {.state = 'R', .cpu_ticks = now_ticks};
  return {.state = 'S', .cpu_ticks = 0};
}

// Before it has met the others.
void SimulatedRanks::freeze_at_start() {
  std::vector<Hang>& hangs = training_.hangs_to_come(machine_);
  const auto is_at_start = [](const Hang& hang) { return hang.phase == RunPhase::kStart; };
  for (const Hang& hang : hangs) {
    if (!is_at_start(hang)) continue;
    Place place;
    place.is_open = hang.share > 0.5;
    const int64_t chosen = training_.hang_random().up_to(std::ssize(ranks_) - 1);
    for (int64_t number = 0; number < std::ssize(ranks_); ++number)
      if (!rank(number).frozen && (hang.is_of_all_ranks || number == chosen)) freeze(number, hang, place, now());
  }
  std::erase_if(hangs, is_at_start);
}

void SimulatedRanks::plant(const Hang& drawn) {
  Hang hang = drawn;
  if (hang.kind == HangKind::kExchange && group_.clock.num_ranks() == 1) hang.kind = HangKind::kAsleep;
  const bool is_too_late = !any_runs() || group_.is_over() || hang.phase == RunPhase::kStart;
  if (is_too_late)
    training_.hangs_to_come(machine_).push_back(hang);
  else if (hang.phase == RunPhase::kExit)
    hangs_at_exit_.push_back(hang);
  else
    come_to(*running_rank(training_.hang_random()), hang);
}

// In work that it has not done yet.
std::optional<Nanoseconds> SimulatedRanks::next_place(int64_t local_rank, const Hang& hang) const {
  const Timeline& timeline = group_.timeline;
  const int64_t number = first_rank_ + local_rank, done = training_.steps_done(group_);
  const Nanoseconds work = group_.clock.work_of(number, now());
  const int64_t last = hang.phase == RunPhase::kLoad ? done + 1 : timeline.num_steps;
  for (int64_t step = done + 1; step <= last; ++step) {
    if (hang.phase == RunPhase::kSave && !timeline.saves(step)) continue;
    if (hang.phase == RunPhase::kEvaluate && !timeline.evaluates(step)) continue;
    const Nanoseconds there = timeline.work_in(number, step, hang.phase, hang.share, hang.kind == HangKind::kStopped);
    if (there > work) return there;
  }
  return std::nullopt;
}

void SimulatedRanks::come_to(int64_t local_rank, const Hang& hang) {
  if (!any_runs() || group_.is_over()) return plant(hang);
  if (!group_.clock.has_begun() || group_.clock.any_frozen())
    return in_time(kSecond / 2, [this, local_rank, hang] { come_to(local_rank, hang); });
  if (const auto work = next_place(local_rank, hang))
    in_time(group_.clock.time_of(*work) - now(), [this, local_rank, hang] { hang_at(local_rank, hang); });
  else
    training_.hangs_to_come(machine_).push_back(hang);
}

// It has come there, unless it was held up on the way.
void SimulatedRanks::hang_at(int64_t local_rank, const Hang& hang) {
  if (!any_runs() || group_.is_over() || rank(local_rank).has_ended) return plant(hang);
  const bool may_wait = hang.kind == HangKind::kStopped;
  const Place there = place(local_rank);
  const bool is_there = there.phase == hang.phase && (may_wait || there.waiting == Waiting::kNothing);
  if (!is_there || rank(local_rank).frozen) return come_to(local_rank, hang);
  for (int64_t number = 0; number < std::ssize(ranks_); ++number) {
    if (rank(number).has_ended || rank(number).frozen || (number != local_rank && !hang.is_of_all_ranks)) continue;
    const Place own = place(number);
    freeze(number, hang, own, group_.clock.since(first_rank_ + number, own.begin, now()));
  }
}

void SimulatedRanks::begin_exit() {
  for (const Hang& hang : hangs_at_exit_) {
    const int64_t chosen = training_.hang_random().up_to(std::ssize(ranks_) - 1);
    Place place;
    place.phase = RunPhase::kExit, place.step = *group_.end_step, place.progress = kLastProgress;
    for (int64_t number = 0; number < std::ssize(ranks_); ++number)
      if (!rank(number).frozen && !rank(number).has_ended && (hang.is_of_all_ranks || number == chosen))
        freeze(number, hang, place, now());
  }
  hangs_at_exit_.clear();
}

void SimulatedRanks::freeze(int64_t local_rank, const Hang& hang, Place place, Nanoseconds still_since) {
  Rank& frozen = rank(local_rank);
  const int64_t number = first_rank_ + local_rank;
  owner_.say(concat("rank ", number, " hangs on ", host_, ": ", to_string(hang.kind), " in ", to_string(place.phase),
                    ", step ", place.step, hang.lasts() ? "" : concat(", for ", hang.seconds, " s")));
  const bool is_where_it_was = frozen.last_progress == place.progress;
  if (is_where_it_was) still_since = frozen.last_still_since;
  if (!is_where_it_was) said_suspended_ = false;  // else perhaps nobody has seen that it went on
  // It went on for too short a time, perhaps, to be seen: then its time does not start anew.
  Nanoseconds due_since = still_since;
  if (is_where_it_was) due_since = frozen.last_stopped_since ? now() : frozen.last_due_since;
  const Nanoseconds stopped_since = is_where_it_was ? frozen.last_stopped_since.value_or(now()) : now();
  if (hang.kind == HangKind::kExchange) place.waiting = Waiting::kPeers, place.waits_for = "exchange";
  const bool is_at_end = place.phase == RunPhase::kExit, keeps_others = is_at_end && !hang.lets_others_end;
  frozen.last_progress = place.progress;
  frozen.last_still_since = still_since, frozen.last_due_since = due_since;
  frozen.last_stopped_since.reset();
  if (hang.kind == HangKind::kStopped) frozen.last_stopped_since = stopped_since;
  frozen.frozen = Frozen{
      hang, place, now(), still_since, due_since, stopped_since, limits_of(local_rank, hang, place), keeps_others, ""};
  changed_ = now();
  if (keeps_others) ++group_.num_kept_from_end;
  if (!is_at_end) training_.freeze(group_, number, place.meeting);
  const uint64_t count = ++frozen.num_hangs;
  if (!hang.lasts()) in_time(nanoseconds(hang.seconds), [this, local_rank, count] { thaw(local_rank, count); });
  const Scenario& scenario = training_.scenario();
  in_time(nanoseconds(scenario.exchange_timeout_seconds + scenario.step_seconds + scenario.load_seconds),
          [this, local_rank, count] { wait_in_vain(local_rank, count); });
}

void SimulatedRanks::thaw(int64_t local_rank, uint64_t number) {
  Rank& thawed = rank(local_rank);
  if (thawed.has_ended || !thawed.frozen || thawed.num_hangs != number) return;
  owner_.say(concat("rank ", first_rank_ + local_rank, " goes on"));
  const Frozen was = *std::exchange(thawed.frozen, std::nullopt);
  changed_ = now();
  thawed.held_up.emplace_back(was.place.begin, now() - was.since);
  if (was.hang.lasts()) training_.note_pause(seconds_of(now() - was.since));
  if (was.place.phase != RunPhase::kExit) {
    training_.thaw(group_, first_rank_ + local_rank);
    if (!group_.clock.has_begun() || group_.clock.any_frozen() || group_.is_over()) return;
    for (SimulatedRanks* part : group_.parts)
      if (part != nullptr) part->note_delay(was.place.meeting, first_rank_ + local_rank);
    return;
  }
  if (!was.keeps_others)
    end(local_rank, 0, 0);
  else if (--group_.num_kept_from_end == 0 && !group_.has_failed)
    training_.end_together(group_);
}

void SimulatedRanks::thaw_all() {
  for (int64_t number = 0; number < std::ssize(ranks_); ++number) thaw(number, rank(number).num_hangs);
}

// These have waited for longer at the meeting.
void SimulatedRanks::note_delay(Nanoseconds meeting, int64_t but_of_rank) {
  for (int64_t number = 0; number < std::ssize(ranks_); ++number) {
    if (first_rank_ + number == but_of_rank) continue;
    const Place wait = group_.timeline.place(first_rank_ + number, meeting - 2 * kIntoNext);
    rank(number).held_up.emplace_back(wait.begin, group_.clock.delay());
  }
}

// Where nobody waits for it, it comes to an end of its own.
void SimulatedRanks::wait_in_vain(int64_t local_rank, uint64_t number) {
  const Rank& waited_for = rank(local_rank);
  if (waited_for.has_ended || !waited_for.frozen || waited_for.num_hangs != number || group_.has_failed) return;
  const bool any_waits = waited_for.frozen->place.phase != RunPhase::kExit || waited_for.frozen->keeps_others;
  // Where all ranks here are stopped that is said, and none is ended.
  const bool is_early = are_all_stopped() || seconds_of(now()) <= due(local_rank, {});
  // Its own exchange has come to the same end, and the rank with it: it does not go on.
  const bool is_in_exchange = waited_for.frozen->hang.kind == HangKind::kExchange;
  const bool is_given_up = any_waits && training_.time_out(group_);
  if (is_early && (is_given_up || is_in_exchange)) training_.note_early_time_out();
  if (is_given_up) return;
  if (is_in_exchange)
    training_.fail(group_, node_, local_rank, 0, static_cast<int>(ExitCode::kLostPeer));
  else
    thaw(local_rank, number);
}

std::vector<double> SimulatedRanks::stretches_of(int64_t local_rank, const Place& place) const {
  std::vector<double> stretches;
  if (place.phase == RunPhase::kStart || place.phase == RunPhase::kExit) return stretches;
  for (Nanoseconds work = 0;;) {
    const Place piece = group_.timeline.place(first_rank_ + local_rank, work);
    if (piece.progress >= place.progress) return stretches;
    if (piece.phase == place.phase && piece.waiting == place.waiting)
      stretches.push_back(seconds_of(length_of(local_rank, piece)));
    work = piece.end + kIntoNext;
  }
}

HangLimits SimulatedRanks::limits_of(int64_t local_rank, const Hang& hang, const Place& place) const {
  const bool is_alone = group_.is_alone(), waits = place.waiting == Waiting::kPeers;
  const auto limits = [&](int64_t number) {
    std::vector<double> stretches = stretches_of(number, place);
    HangLimits of_rank = hang_limits(hang.kind, place, stretches, hang_timeout(), is_alone);
    if (!waits || rank(number).held_up.empty()) return of_rank;
    // How long each wait was that somebody else made longer is known but roughly here.
    for (const auto& [begin, time] : rank(number).held_up) stretches.push_back(seconds_of(time));
    const HangLimits most = hang_limits(hang.kind, place, stretches, hang_timeout(), is_alone),
                     least = hang_limits(hang.kind, place, {}, hang_timeout(), is_alone);
    return HangLimits{least.least, most.most, least.told_least, most.told_most};
  };
  HangLimits all = limits(local_rank);
  if (hang.kind != HangKind::kExchange || !is_alone) return all;
  for (int64_t number = 0; number < std::ssize(ranks_); ++number) {
    const HangLimits of_rank = limits(number);
    all.least = std::max(all.least, of_rank.least);
    all.most = std::max(all.most, of_rank.most);
  }
  all.most += seconds_of(place.meeting - place.begin);  // until all of them wait
  return all;
}

bool SimulatedRanks::are_all_stopped() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return !rank.has_ended && rank.frozen && rank.frozen->hang.kind == HangKind::kStopped;
  });
}

double SimulatedRanks::look_seconds() const {
  return std::max(kBetweenLooks, training_.scenario().options.monitor_interval_seconds);
}

// For a look at which it is seen where it is, and another at which it is seen stopped: where the launcher waits for its
// store meanwhile, they come later. So do they where a signal wakes it just before: the watch passes over that call,
// and the next one is a whole interval after it.
double SimulatedRanks::slack() const {
  const double woken = kBetweenLooks * static_cast<double>(std::min<int64_t>(num_signals_, 2));
  return 2 * look_seconds() + 0.6 + std::min(4 * training_.scenario().network.latest, 2 * kOwnPause) + woken;
}

// Of the watch, which passes over a call that follows another closely.
void SimulatedRanks::note_look() {
  const double since_last = last_look_ < 0 ? kNever : seconds_of(now()) - seconds_of(last_look_);
  if (since_last < kBetweenLooks) return;
  if (last_look_ >= 0 && since_last > kOwnPause && training_.scenario().network.late == 0)
    owner_.violate(concat(host_, ": ranks were not looked at for ", since_last, " s"));
  if (since_last > kLongPause)
    watched_since_ = now();
  else if (since_last > kOwnPause)
    pauses_.emplace_back(last_look_, now());
  last_look_ = now();
}

// For how long the watch has counted what began then: without its launcher's own pauses, and anew after a long one.
double SimulatedRanks::counted_since(Nanoseconds time) const {
  const Nanoseconds from = std::max(time, watched_since_);
  Nanoseconds counted = now() - from;
  for (const auto& [begin, end] : pauses_)
    if (end > from) counted -= end - std::max(begin, from);
  return seconds_of(counted);
}

void SimulatedRanks::end_hung(const std::optional<launch::ToldToEnd>& told) {
  note_look();
  if (!are_all_stopped()) said_suspended_ = false;
  std::vector<pid_t> pids;
  for (int64_t number = 0; number < std::ssize(ranks_); ++number)
    pids.push_back(rank(number).has_ended ? -1 : pid_of(number));
  std::optional<double> seconds;
  if (told) seconds = told->seconds_since;
  const auto hang = watch_.look(pids, seconds);
  if (hang && hang->is_suspended)
    check_suspended(*hang);
  else if (hang)
    check_named(*hang, seconds);
  check_none_is_missed(seconds);
  if (!hang || hang->is_suspended) return;
  for (const size_t culprit : hang->culprits) {
    if (auto& frozen = ranks_[culprit].frozen) frozen->named_as = "the run hangs: " + hang->text;
    training_.note_named();
    training_.fail(group_, node_, static_cast<int64_t>(culprit), SIGKILL, 0);
  }
}

// However long it has waited for others: that it is stopped it can be blamed for only once it has been so for long.
bool SimulatedRanks::is_early(const Frozen& frozen) const {
  return frozen.hang.kind == HangKind::kStopped && counted_since(frozen.stopped_since) + 0.01 < hang_timeout();
}

void SimulatedRanks::check_named(const launch::Hang& hang, std::optional<double> seconds_since_told) {
  owner_.say(concat(host_, ": ", hang.text));
  if (hang.culprits.empty()) owner_.violate(host_ + ": a hang of nobody");
  const auto is_late_at_end = [&](const Frozen& frozen) {
    const double still = counted_since(frozen.still_since);
    return seconds_since_told && std::min(still, *seconds_since_told) + 0.01 >= frozen.limits.told_least;
  };
  if (are_all_stopped() &&
      !std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return is_late_at_end(*rank.frozen); }))
    owner_.violate(concat(host_, ": all ranks are stopped, and some are ended: ", hang.text));
  for (const size_t culprit : hang.culprits) {
    const auto& frozen = ranks_.at(culprit).frozen;
    const int64_t number = first_rank_ + static_cast<int64_t>(culprit);
    if (!frozen || ranks_[culprit].has_ended) {
      owner_.violate(concat("rank ", number, " is named, and does not hang: ", hang.text));
      continue;
    }
    const Place& place = frozen->place;
    const double still = counted_since(frozen->still_since) + 0.01;
    const HangLimits& limits = frozen->limits;
    if (still < limits.least && !is_late_at_end(*frozen))
      owner_.violate(concat("rank ", number, " is named after ", still, " s, not after ", limits.least));
    if (is_early(*frozen)) owner_.violate(concat("rank ", number, " is named as soon as it is stopped: ", hang.text));
    const std::string who = concat("rank ", number, " (process ", pid_of(static_cast<int64_t>(culprit)), " on "),
                      where = place.is_open ? concat(" in phase ", to_string(place.phase)) : " before it began",
                      when = place.step > 0 ? concat("step ", place.step) : "";
    const size_t at = hang.text.find(who);
    if (at == std::string::npos || hang.text.find(where, at) == std::string::npos ||
        hang.text.find(when, at) == std::string::npos)
      owner_.violate(concat("of rank ", number, where, ", ", when, " it is said: ", hang.text));
  }
}

// Somebody hears of it, and lets them go on.
void SimulatedRanks::check_suspended(const launch::Hang& hang) {
  owner_.say(concat(host_, ": all ranks are stopped: ", hang.text));
  if (!are_all_stopped()) owner_.violate(concat(host_, ": not all ranks are stopped: ", hang.text));
  for (const Rank& rank : ranks_)
    if (rank.frozen &&
        (is_early(*rank.frozen) || counted_since(rank.frozen->still_since) + 0.01 < rank.frozen->limits.least))
      owner_.violate(concat(host_, ": ranks are stopped, which is said too early: ", hang.text));
  if (std::exchange(said_suspended_, true)) owner_.violate(host_ + ": it is said twice that all ranks are stopped");
  in_time(nanoseconds(training_.hang_random().between(1, 20)), [this] { thaw_all(); });
}

// By when it is to be named; where all ranks here are stopped, by when that is to be said. Never, where several sleep
// in an exchange: not all others wait then.
double SimulatedRanks::due(int64_t local_rank, std::optional<double> seconds_since_told) const {
  const Frozen& frozen = *rank(local_rank).frozen;
  if (frozen.hang.kind == HangKind::kExchange && group_.clock.num_frozen() > 1) return kNever;
  const bool are_suspended = are_all_stopped();
  // So long until that much time has been counted from then on.
  const auto until = [this](Nanoseconds from, double seconds) {
    return seconds_of(now()) + seconds - counted_since(from);
  };
  // In an exchange it is for all of them that time has to pass, also for who was frozen until now.
  const Nanoseconds wait_since = frozen.hang.kind == HangKind::kExchange ? changed_ : 0,
                    since = std::max(frozen.due_since, wait_since);
  // It has to be stopped, or without processor time, for so long, however long it waited before. Who made progress
  // just before it was stopped is first seen stopped a look later.
  const bool is_stopped = frozen.hang.kind == HangKind::kStopped;
  const double frozen_due =
      until(frozen.since, is_stopped ? hang_timeout() + look_seconds() : std::min(5.0, hang_timeout()));
  double due = std::max(until(since, frozen.limits.most), frozen_due);
  if (seconds_since_told && (!are_suspended || said_suspended_)) {
    double told_due = std::max(until(since, frozen.limits.told_most),
                               seconds_of(now()) - *seconds_since_told + frozen.limits.told_most);
    if (is_stopped) told_due = std::max(told_due, frozen_due);
    due = are_suspended ? told_due : std::min(due, told_due);
  }
  return std::max(due, seconds_of(changed_)) + slack();
}

void SimulatedRanks::check_none_is_missed(std::optional<double> seconds_since_told) {
  if (group_.has_failed) return;
  const bool are_suspended = are_all_stopped();
  double last_due = 0;
  for (int64_t number = 0; number < std::ssize(ranks_); ++number) {
    const auto& frozen = rank(number).frozen;
    if (!frozen || rank(number).has_ended) continue;
    const double named_by = due(number, seconds_since_told);
    last_due = std::max(last_due, named_by);
    if (!are_suspended && seconds_of(now()) > named_by)
      owner_.violate(concat("rank ", first_rank_ + number, " hangs (", to_string(frozen->hang.kind), " in ",
                            to_string(frozen->place.phase), ") for ", seconds_of(now() - frozen->since),
                            " s, and is not named"));
  }
  if (are_suspended && seconds_of(now()) > last_due && (!said_suspended_ || seconds_since_told))
    owner_.violate(concat(host_, ": all ranks are stopped, and nobody says so"));
}

}  // namespace espalier::control_plane
