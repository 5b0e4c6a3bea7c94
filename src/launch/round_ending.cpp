#include "launch/round_ending.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "launch/internal/meeting_keys.h"
#include "launch/internal/meeting_records.h"
#include "launch/peer_watch.h"

namespace espalier::launch {
namespace {

using internal::EndRecord;
using namespace std::chrono_literals;

constexpr const char* kForGood = "for good";
constexpr double kSecondsToVanish = 70;  // the store's keepalive (prepare_connection) takes up to 60

// What that machine says of its ranks.
bool counts(const EndRecord& record, size_t node) {
  return std::find(record.stopped.begin(), record.stopped.end(), node) != record.stopped.end();
}

// A launcher that went away has no time of its own: its ranks died with it, before any other could fail of that.
void put_those_without_time_first(std::vector<Failure>& failures, double now) {
  double first = now;
  for (const Failure& failure : failures)
    if (failure.time > 0) first = std::min(first, failure.time - 1);
  for (Failure& failure : failures)
    if (failure.time == 0) failure.time = first - 1;
}

}  // namespace

RoundEnding::RoundEnding(const Means& means, Round round)
    : store_(means.store), watched_(means.watched), surroundings_(means.surroundings), round_(std::move(round)) {
  const Failure vanished =
      lost_machine(round_.node, "vanished: it was killed, ended by an error, or its machine or network is down");
  internal::leave_departure(store_, round_.number, round_.nodes[round_.node].id,
                            {round_over_key(round_.number), stopped_key(round_.node)},
                            {kRoundFailed, launch::to_json(std::vector<Failure>{vanished})});
}

RoundEnding::~RoundEnding() { stop_watching(); }

std::string RoundEnding::key(const std::string& name) const { return internal::key_of(round_.number, name); }

std::string RoundEnding::stopped_key(size_t node) const { return key(concat("stopped/", node)); }

// `what`: "vanished: ...".
Failure RoundEnding::lost_machine(size_t node, const std::string& what) const {
  const Node& lost = round_.nodes[node];
  Failure failure;
  failure.rank = first_rank_of(round_, node);
  failure.host = lost.address;
  failure.pid = lost.pid;
  failure.exit_code = static_cast<int>(ExitCode::kFailed);
  failure.lost_machine = true;
  failure.message = concat("the launcher on ", lost.address, " (pid ", lost.pid, ") ", what);
  return failure;
}

void RoundEnding::watch() {
  watcher_ = surroundings_.start([this] { look_until_over(); });
}

void RoundEnding::look_until_over() {
  while (!leaving_) {
    try {
      const std::string how = watched_.get(round_over_key(round_.number), 500ms);
      // Where all are done, a launcher that dies after that changes nothing, though its last will says that it failed.
      outcome_ = how == kRoundDone        ? RoundOutcome::kDone
                 : how == kRoundRegroups  ? RoundOutcome::kRegroups
                 : all_are_done(watched_) ? end_well(watched_)
                                          : RoundOutcome::kFailed;
      return;
    } catch (const RendezvousTimeout&) {
      continue;  // they run
    } catch (const UserError&) {
      outcome_ = RoundOutcome::kLostStore;
      return;
    }
  }
}

void RoundEnding::stop_watching() {
  leaving_ = true;
  watcher_.reset();
}

void RoundEnding::ask_to_regroup() { store_.compare_set(key("regroup"), "", "yes"); }

void RoundEnding::forget_to_regroup() { store_.set(key("regroup"), "no"); }

void RoundEnding::report_done() {
  if (store_.add(key("done"), 1) != std::ssize(round_.nodes)) return;
  const RoundOutcome outcome = end_well(store_);
  if (outcome == RoundOutcome::kFailed) return;  // others have waited in vain until their time was over
  store_.compare_set(round_over_key(round_.number), "",
                     outcome == RoundOutcome::kRegroups ? kRoundRegroups : kRoundDone);
}

void RoundEnding::report_failed() { store_.compare_set(round_over_key(round_.number), "", kRoundFailed); }

// Its last will first: a launcher that dies between the two says the same, so that nobody has read anything else.
void RoundEnding::report_stopped(const std::vector<Failure>& failures) {
  const std::string stopped = stopped_key(round_.node), text = launch::to_json(failures);
  internal::leave_departure(store_, round_.number, round_.nodes[round_.node].id, {stopped}, {text});
  store_.set(stopped, text);
}

void RoundEnding::report_told(bool for_good) {
  if (for_good)
    store_.set(key("told"), kForGood);
  else
    store_.compare_set(key("told"), "", "yes");
}

ToldAnywhere RoundEnding::told() {
  if (!store_.check({key("told")})) return ToldAnywhere::kNot;
  return store_.get(key("told"), 10s) == kForGood ? ToldAnywhere::kToEndForGood : ToldAnywhere::kToEnd;
}

bool RoundEnding::all_are_done(RendezvousStore& store) const {
  return store.add(key("done"), 0) == std::ssize(round_.nodes);
}

RoundOutcome RoundEnding::outcome_after_all(RendezvousStore& store) const {
  if (!all_are_done(store)) return RoundOutcome::kFailed;
  return store.compare_set(key("regroup"), "", "no") == "yes" ? RoundOutcome::kRegroups : RoundOutcome::kDone;
}

// Of the records of all machines the first holds.
EndRecord RoundEnding::agree(RendezvousStore& store, EndRecord mine) const {
  EndRecord agreed = internal::end_record_from_json(store.compare_set(key("end"), "", internal::to_json(mine)));
  if (agreed.outcome == RoundOutcome::kDone) store.compare_set(internal::kOverKey, "", kRoundDone);
  return agreed;
}

RoundOutcome RoundEnding::end_well(RendezvousStore& store) const {
  return agree(store, {.outcome = outcome_after_all(store), .stopped = {}, .told = ToldAnywhere::kNot}).outcome;
}

// Waits until all have, and no longer where that is of no use: a machine that has seen that all are done says nothing
// more, and once the end is written down it holds.
std::vector<size_t> RoundEnding::those_that_have_stopped(Surroundings::Time deadline) {
  std::vector<std::string> keys;
  std::vector<size_t> all, stopped;
  for (size_t at = 0; at < round_.nodes.size(); ++at) keys.push_back(stopped_key(at)), all.push_back(at);
  while (true) {
    const auto left = std::chrono::duration_cast<RendezvousStore::Milliseconds>(deadline - surroundings_.now());
    try {
      store_.wait(keys, std::clamp<RendezvousStore::Milliseconds>(left, 0ms, 500ms));
      return all;
    } catch (const RendezvousTimeout&) {
      if (all_are_done(store_) || store_.check({key("end")})) return {};
      if (surroundings_.now() >= deadline) break;
    }
  }
  std::copy_if(all.begin(), all.end(), std::back_inserter(stopped),
               [&](size_t at) { return store_.check({keys[at]}); });
  return stopped;
}

// What a machine has said of its ranks stays as it is (report_stopped()), so that only whose words count has to be
// agreed on.
RoundEnd RoundEnding::agree_on_end(double patience_seconds) {
  EndRecord mine;
  mine.stopped = those_that_have_stopped(surroundings_.time_in(std::max(patience_seconds, kSecondsToVanish)));
  mine.outcome = outcome_after_all(store_);
  mine.told = told();
  const EndRecord agreed = agree(store_, std::move(mine));
  RoundEnd end = {.outcome = agreed.outcome, .failures = {}, .told = agreed.told};
  if (end.outcome != RoundOutcome::kFailed) return end;
  end.counts_own = counts(agreed, round_.node);
  end.failures = failures_of(agreed);
  put_those_without_time_first(end.failures, surroundings_.seconds_since_1970());
  sort_by_cause(end.failures);
  return end;
}

// What the machines of the record have said. If they know of none, those that have said nothing are suspected.
std::vector<Failure> RoundEnding::failures_of(const EndRecord& record) {
  std::vector<Failure> failures, silent;
  for (size_t at = 0; at < round_.nodes.size(); ++at) {
    if (counts(record, at)) continue;
    silent.push_back(lost_machine(at, "has not said in time how its ranks ended"));
    if (at == round_.node)
      log_warning("the ranks here took so long to stop that the other machines have decided without this one");
    else
      log_warning("the launcher on ", round_.nodes[at].address, " has not said how its ranks ended");
  }
  std::vector<std::string> keys;
  for (const size_t at : record.stopped) keys.push_back(stopped_key(at));
  for (const std::string& text : store_.multi_get(keys, 10s))
    for (Failure& failure : failures_from_json(text)) failures.push_back(std::move(failure));
  return failures.empty() ? silent : failures;
}

}  // namespace espalier::launch
