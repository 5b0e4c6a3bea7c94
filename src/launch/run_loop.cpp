#include "launch/run_loop.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "launch/hold.h"
#include "launch/internal/try_to_tell.h"

namespace espalier::launch {
namespace {

using internal::try_to_tell;

// The machine of the rank that failed.
size_t node_of(const Round& round, const Failure& cause) {
  int64_t end = 0;
  for (size_t at = 0; at < round.nodes.size(); ++at) {
    end += round.nodes[at].num_ranks;
    if (cause.rank < end) return at;
  }
  return round.nodes.size() - 1;
}

bool is_here(const Round& round, const Failure& cause) { return node_of(round, cause) == round.node; }

// Not by what a rank did itself, and not by the launcher as it hung.
bool are_from_outside(const std::vector<Failure>& failures) {
  return std::all_of(failures.begin(), failures.end(),
                     [](const Failure& failure) { return is_from_outside(failure) && !was_hung(failure); });
}

}  // namespace

int RunLoop::run() {
  while (true) {
    const std::optional<Round> round = join();
    if (!round) return end_without_round();
    node_ = static_cast<int64_t>(round->node);
    const std::optional<int> exit_code = run_round(*round);
    if (!exit_code) continue;
    if (is_left_out_) stay_as_host();
    return *exit_code;
  }
}

// The run ends here where machines do not come or the store is gone: one alert of it, as far as launchers that have
// nothing to meet by can tell who gives it.
std::optional<Round> RunLoop::join() {
  const auto tell = [this](const UserError& error) {
    site_.tell({.what = concat(error.what(), " The run has ended"), .run_folder = run_folder_});
  };
  try {
    return meeting_.join([this] { return is_told_to_end(); });
  } catch (const RendezvousLost& error) {
    if (tells_of_lost_store()) tell(error);
    throw;
  } catch (const UserError& error) {
    if (error.code() == ExitCode::kLostPeer && site_.hosts_store()) tell(error);
    throw;
  }
}

// The first machine of the last round is most often the one that is gone.
bool RunLoop::tells_of_lost_store() const { return node_ == 0 || node_ == 1; }

bool RunLoop::is_told_to_end() {
  if (const auto signal = surroundings_.wait_for_signal(0)) orders_.take_between_rounds(*signal);
  return orders_.ending_signal() != 0;
}

int RunLoop::end_without_round() {
  if (orders_.ending_signal() != 0) {
    if (site_.has_snapshots())
      log_warning("stopped before the ranks started again: copies of their state in memory are lost; the newest ",
                  "checkpoint is what remains");
    const bool was_in_run = node_ >= 0, needs_all = options_.min_nodes == options_.max_nodes;
    try_to_tell([&] {
      if (was_in_run && needs_all && meeting_.is_awaited()) meeting_.report_over(/*well=*/false);
    });
    return 128 + orders_.ending_signal();
  }
  if (!meeting_.is_over_badly()) return 0;
  log_warning("the run has ended while this machine waited: another launcher failed for good, or was told to stop");
  return static_cast<int>(ExitCode::kLostPeer);
}

void RunLoop::say_start(const Round& round) const {
  if (round.node != 0) return;
  const std::string folder = site_.kept_folder();
  const std::string again = round.number == 0 ? ""
                            : restarts_.restart() == 0
                                ? " again"  // with other machines
                                : concat(" again (restart ", restarts_.restart(), " of ", options_.max_restarts, ")");
  log_info("starting ", round.world_size, round.world_size == 1 ? " rank" : " ranks", again, " on ", round.nodes.size(),
           round.nodes.size() == 1 ? " machine: " : " machines: ", program_.name,
           folder.empty() ? "" : "; the ranks' files are in " + folder);
}

// The launcher's exit code; nothing if the group is to start again.
std::optional<int> RunLoop::run_round(const Round& round) {
  restarts_ = RestartPolicy(options_.max_restarts, round.history);
  say_start(round);
  is_regroup_asked_ = may_go_on_ = false;
  num_held_ = 0;
  first_step_.reset();
  orders_.begin_round(/*is_again=*/round.number > 0);
  std::unique_ptr<Ranks> ranks = site_.start(round, std::move(held_));
  const RoundOutcome outcome = watch(round, *ranks);
  const bool all_well = outcome == RoundOutcome::kDone || outcome == RoundOutcome::kRegroups;
  if (!all_well) reap_together(*ranks);
  if (outcome == RoundOutcome::kFailed && !orders_.is_for_good() && hold(*ranks)) {
    const std::optional<int> exit_code = end_or_restart(round, *ranks);
    if (!exit_code && may_go_on_) held_ = std::move(ranks);
    return exit_code;
  }
  if (!all_well) stop(*ranks);
  ranks->finish_output();
  if (outcome == RoundOutcome::kRegroups && !orders_.is_told()) return start_with_others();
  if (all_well) return 0;
  if (orders_.ending_signal() != 0) return end_by_signal(round, *ranks);
  if (outcome == RoundOutcome::kLostStore && !orders_.is_for_good()) return end_without_store(*ranks);
  return end_or_restart(round, *ranks);
}

RoundOutcome RunLoop::watch(const Round& round, Ranks& ranks) {
  try {
    return watch_until_over(round, ranks);
  } catch (const RendezvousLost&) {  // where the store goes just as this launcher asks it
    return RoundOutcome::kLostStore;
  }
}

// Until the round is over, a rank fails here, or a signal has ended all ranks.
RoundOutcome RunLoop::watch_until_over(const Round& round, Ranks& ranks) {
  bool reported = false;
  std::optional<Time> deadline;
  while (true) {
    if (const auto signal = surroundings_.wait_for_signal(options_.monitor_interval_seconds))
      orders_.pass_on(*signal, ranks, deadline);
    ranks.reap();
    if (!orders_.is_told()) orders_.look_for_reason(ranks);
    ranks.end_hung(orders_.told());
    const bool is_told = orders_.is_told();
    if (ranks.any_failed() && (!is_told || (orders_.may_end_later() && are_from_outside(ranks.failures()))))
      return RoundOutcome::kFailed;
    if (ranks.any_failed() && !deadline)  // while ending: its peers may wait for it for ever
      deadline = surroundings_.time_in(options_.patience_after_failure());
    if (round.node == 0 && !is_told) take_in_waiting(ranks);
    const bool ended = ranks.num_running() == 0;
    if (ended && ranks.all_well() && !reported) {
      meeting_.ending().report_done();
      reported = true;
    }
    if (const RoundOutcome outcome = meeting_.ending().outcome(); outcome != RoundOutcome::kRunning) return outcome;
    ranks.let_go_of_strays();
    orders_.ask_again(ranks);
    if (is_told && ended && !reported) return RoundOutcome::kFailed;
    if (deadline && surroundings_.now() >= *deadline) return RoundOutcome::kFailed;
    if (is_told) orders_.say_who_is_awaited(ranks);
  }
}

// Of a run on fewer machines than it may have: those that have come meanwhile, as soon as it has made a step of its
// own.
void RunLoop::take_in_waiting(Ranks& ranks) {
  if (!program_.goes_on_after_stop || options_.min_nodes == options_.max_nodes) return;
  const Sight sight = ranks.sight();
  if (ranks.num_running() < options_.num_local_ranks || sight.phase != RunPhase::kTrain || is_regroup_asked_) return;
  if (!first_step_) first_step_ = sight.step;
  if (sight.step <= *first_step_ || surroundings_.now() - last_look_ < std::chrono::milliseconds(500)) return;
  last_look_ = surroundings_.now();
  const std::vector<Node> waiting = meeting_.larger_group(options_.last_call_seconds);
  if (waiting.empty()) return;
  std::string names;
  for (const Node& node : waiting) names += concat(names.empty() ? "" : ", ", node.address);
  log_info(names, waiting.size() == 1 ? " waits" : " wait", " to take part: the run saves and starts again with ",
           waiting.size() == 1 ? "it" : "them");
  meeting_.ending().ask_to_regroup();
  is_regroup_asked_ = true;
  ranks.send(SIGTERM);
}

// Ranks that failed at the same moment are noticed together, so that the cause is among them.
void RunLoop::reap_together(Ranks& ranks) {
  if (orders_.ending_signal() != 0) return;
  surroundings_.sleep_for(std::chrono::milliseconds(100));
  ranks.reap();
}

void RunLoop::stop(Ranks& ranks) {
  say_failed();
  ranks.stop(SIGTERM, orders_.is_for_good() ? 0 : options_.patience_after_failure());
  say_stopped(ranks);
}

// And that this machine is told to end, if it is, for those who wait in vain until its ranks have stopped.
void RunLoop::say_failed() {
  try_to_tell([this] {
    if (orders_.is_told()) meeting_.ending().report_told(orders_.is_for_good());
    meeting_.ending().report_failed();
  });
}

void RunLoop::say_stopped(const Ranks& ranks) {
  try_to_tell([&] {
    if (orders_.is_told()) meeting_.ending().report_told(orders_.is_for_good());  // copies in memory may be gone by now
    meeting_.ending().report_stopped(ranks.failures());
  });
}

// Where all that is known to have failed was ended from outside: the others may go on with their state. False: they
// have to be stopped, or have ended.
bool RunLoop::hold(Ranks& ranks) {
  if (!are_from_outside(ranks.failures()) || !ranks.may_be_held()) return false;
  say_failed();
  num_held_ = ranks.hold(kSecondsToLeave + 1);
  if (num_held_ == 0) return false;
  say_stopped(ranks);
  return true;
}

int RunLoop::end_by_signal(const Round& round, const Ranks& ranks) {
  try_to_tell([&] { meeting_.report_over(ranks.all_well()); });
  if (ranks.all_well()) return 0;
  std::vector<Failure> failures = ranks.failures();
  // Of the signal itself those end that were not yet so far as to heed it.
  std::erase_if(failures, [&](const Failure& failure) { return failure.signal == orders_.ending_signal(); });
  sort_by_cause(failures);
  if (round.node == 0 && !failures.empty())
    site_.tell({.what = concat("told to stop, rank ", failures.front().rank, " on ", failures.front().host, " failed (",
                               describe(failures.front()), "); the run has ended"),
                .run_folder = ranks.sight().folder,
                .failures = failures});
  for (const Failure& failure : ranks.failures())
    if (!failure.error_file.empty()) return report(ranks.failures());
  log_info("stopped by SIG", sigabbrev_np(orders_.ending_signal()));
  return 128 + orders_.ending_signal();
}

// Not by a signal that ends this launcher, and the ranks did not end well.
int RunLoop::end_as_told(const Round& round, const Ranks& ranks, const RoundEnd& end) {
  try_to_tell([this] { meeting_.report_over(/*well=*/false); });
  const Failure& cause = end.failures.front();
  const std::string by = orders_.is_told() ? orders_.by() : "by another launcher";
  if (round.node == 0)
    site_.tell({.what = concat("rank ", cause.rank, " on ", cause.host, " failed (", describe(cause),
                               ") after the run was told to end (", by, "); the run has ended"),
                .run_folder = run_folder_,
                .starts_again = false,
                .failures = end.failures});
  return end_with(round, ranks, end);
}

// All machines have stopped their ranks, and none has a failure to tell of.
int RunLoop::end_without_cause(const Round& round, const Ranks& ranks, const RoundEnd& end) {
  try_to_tell([this] { meeting_.report_over(/*well=*/false); });
  const bool is_told = orders_.is_told() || end.told != ToldAnywhere::kNot;
  const std::string what = is_told ? "the run was told to end, and the ranks were stopped"
                                   : "the ranks were stopped because another machine's failed; it has not said why";
  log_warning(what);
  if (round.node == 0 && !is_told) site_.tell({.what = what + "; the run has ended", .run_folder = run_folder_});
  return ranks.any_failed() ? report(ranks.failures()) : static_cast<int>(ExitCode::kLostPeer);
}

int RunLoop::end_without_store(const Ranks& ranks) {
  const std::string what = concat("lost the rendezvous store at ", options_.store_host, ":", options_.store_port,
                                  ": the launcher that hosts it has ended. The ranks here are stopped");
  log_warning(what, ".");
  if (tells_of_lost_store())
    site_.tell(
        {.what = what + "; the run has ended", .run_folder = ranks.sight().folder, .failures = ranks.failures()});
  return ranks.any_failed() ? report(ranks.failures()) : static_cast<int>(ExitCode::kLostPeer);
}

std::optional<int> RunLoop::start_with_others() {
  restarts_.gain();
  hand_on_history();
  return std::nullopt;
}

// Who takes part in the next round knows it, also one that was not in this: so all decide alike.
void RunLoop::hand_on_history() {
  try_to_tell([this] { meeting_.leave_history(restarts_.history()); });
}

std::optional<int> RunLoop::end_or_restart(const Round& round, const Ranks& ranks) {
  const std::string run_folder = ranks.sight().folder;
  if (!run_folder.empty()) run_folder_ = run_folder;
  RoundEnd end;  // unless the store answers
  end.failures = ranks.failures();
  sort_by_cause(end.failures);
  try_to_tell([&] { end = meeting_.ending().agree_on_end(options_.patience_after_failure() + 10); });
  const auto& [outcome, failures, told, counts_own] = end;
  if (outcome == RoundOutcome::kDone) return 0;
  if (outcome == RoundOutcome::kRegroups) return orders_.is_told() ? std::optional(0) : start_with_others();
  // Without it nobody starts again.
  if (outcome == RoundOutcome::kLostStore && (failures.empty() || !orders_.is_for_good()))
    return end_without_store(ranks);
  if (failures.empty()) return end_without_cause(round, ranks, end);
  if (!counts_own && ranks.any_failed())
    log_warning("what they did not know: rank ", ranks.failures().front().rank, " failed here (",
                describe(ranks.failures().front()), ")");
  const Failure& cause = failures.front();
  const bool is_told = orders_.is_told() || told != ToldAnywhere::kNot;
  const bool ends = told == ToldAnywhere::kToEndForGood || orders_.is_for_good();
  if (is_told && (ends || !are_from_outside({cause}))) return end_as_told(round, ranks, end);
  // The same options would be refused again.
  const bool is_refused =
      program_.is_ours && cause.signal == 0 && cause.exit_code == static_cast<int>(ExitCode::kUsage);
  RestartDecision decision = restarts_.decide(cause);
  if (is_refused) decision.starts_again = false;
  const bool goes_without = !decision.starts_again && !is_refused && shrinks(round, cause);
  if (goes_without) {
    if (round.node == 0 && !cause.lost_machine) tell_left_out(cause, run_folder, failures);
    if (!cause.lost_machine && is_here(round, cause)) {
      log_warning("rank ", cause.rank, " on ", cause.host, " failed (", describe(cause),
                  ") as often as is allowed: this machine takes part no more, the others go on without it");
      is_left_out_ = true;
      return report(failures);
    }
    restarts_ = RestartPolicy(options_.max_restarts);
    restarts_.gain();
    decision = {.starts_again = true, .restart = 0, .trusts_memory = true, .alike = {}};
  }
  const std::string what = concat("rank ", cause.rank, " on ", cause.host, " failed (", describe(cause), "); ");
  if (round.node == 0 && (!goes_without || cause.lost_machine))
    site_.tell({.what = what + (goes_without            ? std::string(kGoesOnWithout)
                                : decision.starts_again ? concat("restart ", decision.restart, " of ",
                                                                 options_.max_restarts, kRestartFollows)
                                : decision.is_refused
                                    ? std::string("this start is refused, and nothing has been trained by it")
                                : decision.alike.empty() ? std::string("the run has ended")
                                                         : concat("the same fault came ", decision.alike.size(),
                                                                  " times, and the run has ended")),
                .run_folder = run_folder,
                .starts_again = decision.starts_again,
                .failures = failures});
  if (decision.starts_again) {
    const bool keeps_some = num_held_ > 0 && decision.trusts_memory;
    log_info(what,
             keeps_some ? concat("starting again; ", num_held_, " of the ", options_.num_local_ranks, " ranks here ",
                                 num_held_ == 1 ? "keeps its process" : "keep their processes")
                        : std::string("starting all ranks again"),
             decision.wait_seconds > 0 ? concat(" in ", decision.wait_seconds, " s, as they got no further than before")
                                       : "");
    may_go_on_ = decision.trusts_memory;
    if (!decision.trusts_memory) site_.forget_snapshots();
    hand_on_history();
    wait_before_restart(decision.wait_seconds);
    return std::nullopt;
  }
  try_to_tell([this] { meeting_.report_over(/*well=*/false); });
  if (!decision.alike.empty() && round.node == 0) site_.say_cause(decision.alike, run_folder);
  return end_with(round, ranks, end);
}

// Of all machines, and what happened here in any case.
int RunLoop::end_with(const Round& round, const Ranks& ranks, const RoundEnd& end) {
  std::vector<Failure> failures = end.failures;
  if (!end.counts_own) failures.insert(failures.end(), ranks.failures().begin(), ranks.failures().end());
  if (ranks.any_failed() || round.node == 0) return report(std::move(failures));
  const Failure& cause = failures.front();
  log_info("rank ", cause.rank, " on ", cause.host, " failed first (", describe(cause),
           "); the launcher there tells more");
  return exit_code_of(cause);
}

// Whether the machine of the failure is lost for good, and the others are enough, with those that wait. What a rank
// does by itself, it would do elsewhere as well.
bool RunLoop::shrinks(const Round& round, const Failure& cause) const {
  const bool is_of_machine = cause.lost_machine || cause.signal != 0;
  if (!is_of_machine || !is_from_outside(cause)) return false;
  if (std::ssize(round.nodes) > options_.min_nodes) return true;
  bool are_enough = false;
  if (options_.min_nodes < options_.max_nodes)
    try_to_tell([&] { are_enough = meeting_.others_are_enough(node_of(round, cause)); });
  return are_enough;
}

void RunLoop::tell_left_out(const Failure& cause, const std::string& run_folder, const std::vector<Failure>& failures) {
  site_.tell({.what = concat("rank ", cause.rank, " on ", cause.host, " failed (", describe(cause),
                             ") as often as is allowed; ", kGoesOnWithout),
              .run_folder = run_folder,
              .starts_again = true,
              .failures = failures});
}

// The others need the rendezvous store.
void RunLoop::stay_as_host() {
  if (!site_.hosts_store()) return;
  log_info("this launcher stays until the run is over, for its rendezvous store");
  meeting_.wait_until_over([this] { return is_told_to_end(); });
}

// A signal that ends the launcher is heard when it meets the others, or here.
void RunLoop::wait_before_restart(double seconds) {
  const Time end = surroundings_.time_in(seconds);
  while (surroundings_.now() < end && orders_.ending_signal() == 0 && !orders_.asks_to_stop())
    if (const auto signal = surroundings_.wait_for_signal(0.1)) orders_.take_between_rounds(*signal);
}

int RunLoop::report(std::vector<Failure> failures) {
  sort_by_cause(failures);
  site_.report(failures);
  return exit_code_of(failures.front());
}

}  // namespace espalier::launch
