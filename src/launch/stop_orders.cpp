#include "launch/stop_orders.h"

#include <signal.h>
#include <string.h>

#include <chrono>
#include <utility>

#include "base/format.h"
#include "base/log.h"
#include "launch/internal/signals.h"
#include "launch/internal/try_to_tell.h"

namespace espalier::launch {
namespace {

using internal::TakenSignals;

constexpr auto kBetweenQuestions = std::chrono::milliseconds(500);
constexpr auto kBetweenWords = std::chrono::seconds(30);
constexpr auto kTimeToInsist = std::chrono::seconds(2);
constexpr auto kTimeToReadCopies = std::chrono::minutes(10);

std::string num_running(const Ranks& ranks) {
  const int64_t count = ranks.num_running();
  return concat(count, count == 1 ? " rank" : " ranks");
}

std::string bound_in_words(const Ranks& ranks) {
  const double bound = ranks.bound_at_end();
  return bound <= 0 ? "" : concat("; one that makes no progress for ", format_duration(bound), " is ended");
}

bool trains(const Ranks& ranks) {
  const RunPhase phase = ranks.sight().phase;
  return phase != RunPhase::kStart && phase != RunPhase::kLoad;
}

}  // namespace

void StopOrders::begin_round(bool is_again) {
  is_again_ = is_again;
  is_told_by_rule_ = has_asked_ = false;
  by_.clear();
  round_start_ = last_question_ = surroundings_.now();
}

// The ranks look themselves, between two steps. In a restart from copies of their state first of all once they have
// read these, unless that takes so long that they may hang.
void StopOrders::look_for_reason(const Ranks& ranks) {
  const bool may_be_reading = is_again_ && surroundings_.now() - round_start_ < kTimeToReadCopies && !trains(ranks);
  if (may_be_reading && site_.has_snapshots()) return;
  if (!program_.reason_to_end || surroundings_.now() - last_question_ < kBetweenQuestions) return;
  last_question_ = surroundings_.now();
  const std::string reason = program_.reason_to_end(Surroundings::Seconds(last_question_ - start_).count());
  if (reason.empty()) return;
  note(reason);
  is_told_by_rule_ = true;
  log_info(reason, ": waiting for ", num_running(ranks), " to save and end", bound_in_words(ranks));
}

void StopOrders::note(const std::string& by) {
  if (is_told()) return;
  by_ = by;
  told_at_ = last_word_ = surroundings_.now();
  internal::try_to_tell([this] { meeting_.ending().forget_to_regroup(); });
}

std::optional<ToldToEnd> StopOrders::told() const {
  if (!is_told()) return std::nullopt;
  return ToldToEnd{by_, Surroundings::Seconds(surroundings_.now() - told_at_).count()};
}

void StopOrders::say_who_is_awaited(const Ranks& ranks) {
  if (surroundings_.now() - last_word_ < kBetweenWords) return;
  last_word_ = surroundings_.now();
  log_info("still waiting for ", num_running(ranks), " to end");
}

// Training that is told to stop saves first, however long that takes: a scheduler's own limit ends it if it must.
std::optional<double> StopOrders::patience() const {
  if (options_.shutdown_timeout_seconds || program_.is_ours) return options_.shutdown_timeout_seconds;
  return kShutdownSeconds;
}

void StopOrders::pass_on(int signal, Ranks& ranks, std::optional<Time>& deadline) {
  if (signal == SIGCHLD) return;
  const std::string name = concat("SIG", sigabbrev_np(signal));
  if (!TakenSignals::ends(signal)) {
    const bool ends_run = signal == SIGUSR1 && program_.is_ours;
    if (ends_run) asks_to_stop_ = true;
    if (ends_run && is_again_ && !trains(ranks)) {  // in a restart, whose copies of the state are not read yet
      log_info(name, ": passed on to the ranks once they train");
      return;
    }
    ranks.send(signal);
    if (ends_run) note(name), has_asked_ = true;
    log_info("passed ", name, " on to the ranks", ends_run ? bound_in_words(ranks) : "");
    return;
  }
  const Time now = surroundings_.now(), before = std::exchange(last_ending_, now);
  if (site_.kill_is_asked()) {
    log_warning("espalier ctl kill: killing ", num_running(ranks));
    note("espalier ctl kill");
    ending_signal_ = signal;
    deadline = now;
    return;
  }
  last_word_ = now;
  if (++num_endings_ == 1) {
    note(name);
    ranks.send(signal);
    ending_signal_ = signal;
    if (const auto seconds = patience()) deadline = surroundings_.time_in(*seconds);
    log_info("passed ", name, " on; waiting ",
             patience() ? concat("up to ", format_duration(*patience())) : "as long as it takes", " for ",
             num_running(ranks), program_.is_ours ? " to save and end" : " to end", bound_in_words(ranks));
  } else if (num_endings_ >= 3 && now - before <= kTimeToInsist) {
    log_warning(name, " again: killing ", num_running(ranks));
    deadline = now;
  } else {
    log_warning("still waiting for ", num_running(ranks), " to end; ", name,
                " once more within two seconds kills them, and what is not saved is lost");
  }
}

// Training saves and stops on SIGUSR1, which a scheduler sends once: ranks that did not get so far, or are of a later
// start, get it again, as soon as they train: before that they would end without what they were started with.
void StopOrders::ask_again(Ranks& ranks) {
  if (!program_.is_ours || !asks_to_stop_ || has_asked_ || ending_signal_ != 0) return;
  if (ranks.num_running() < options_.num_local_ranks || !trains(ranks)) return;
  ranks.send(SIGUSR1);
  has_asked_ = true;
  note("SIGUSR1");
  log_info("passed SIGUSR1 on to the ranks, which had not stopped when they were started again", bound_in_words(ranks));
}

bool StopOrders::may_end_later() const {
  return ending_signal_ == 0 && (asks_to_stop_ || is_told_by_rule_) && site_.has_snapshots();
}

void StopOrders::take_between_rounds(int signal) {
  if (TakenSignals::ends(signal)) ending_signal_ = signal;
  if (signal == SIGUSR1) asks_to_stop_ = true;
}

}  // namespace espalier::launch
