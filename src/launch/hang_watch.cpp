#include "launch/hang_watch.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/format.h"
#include "base/host_name.h"
#include "launch/internal/rank_list.h"

namespace espalier::launch {
namespace {

constexpr double kBetweenLooks = 0.25;
// A pause of the launcher itself is not counted to the ranks' time (it waits for a slow store: again and again,
// perhaps); after a long one (the machine was suspended) that starts anew.
constexpr double kOwnPause = 2, kLongPause = 10;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Uses no processor time, in any of its threads. A rank that waits for a disk but copies what comes from it does.
bool is_idle(const RankSight& rank, const HangRules& rules) {
  return rank.seconds_without_cpu >= std::min(rules.shortest, 5.0);
}

bool waits_for_disk(const RankSight& rank) { return rank.state == 'D' || rank.sight.waiting == Waiting::kFiles; }

// How long this rank may go without a sign of progress.
double bound_of(const RankSight& rank, const HangRules& rules) {
  const Sight& sight = rank.sight;
  const double usual = 5 * sight.percentile_99, longest = 3 * sight.longest;
  if (rank.state == 'T') return std::max(rules.shortest, usual);
  if (sight.waiting == Waiting::kPeers) return std::max({rules.all_wait, rules.shortest, usual, longest});
  if (!is_idle(rank, rules))
    return sight.num_stretches < rules.stretches_to_know ? std::numeric_limits<double>::infinity()
                                                         : std::max({rules.busy, rules.shortest, usual, longest});
  if (waits_for_disk(rank)) return std::max({rules.disk, rules.shortest, usual, longest});
  const bool works = sight.phase == RunPhase::kTrain || sight.phase == RunPhase::kEvaluate;
  return std::max({works ? 0 : rules.asleep_elsewhere, rules.shortest, usual});
}

// Of a run that was told to end, also before anything is known of a rank, and where all are stopped.
bool is_late_at_end(const RankSight& rank, const HangRules& rules, std::optional<double> seconds_since_told) {
  return seconds_since_told &&
         std::min(rank.seconds_still, *seconds_since_told) >=
             std::max({rules.bound_at_end(), 5 * rank.sight.percentile_99, 3 * rank.sight.longest});
}

const char* state_in_words(const RankSight& rank) {
  if (rank.state == 'T') return "is stopped (SIGSTOP, or a debugger)";
  if (rank.sight.waiting == Waiting::kPeers) return "waits for a rank that waits as well";
  if (waits_for_disk(rank)) return "waits for a disk or a file system";
  return rank.seconds_without_cpu > 1 ? "sleeps" : "computes without progress";
}

std::string place_in_words(const Sight& sight) {
  if (!sight.is_open) return "before it began";
  std::string text = concat("in phase ", to_string(sight.phase));
  if (sight.step > 0) text += concat(", step ", format_count(sight.step));
  if (sight.micro_batch >= 0) text += concat(", micro-batch ", sight.micro_batch);
  if (sight.waiting != Waiting::kNothing) text += concat(", ", sight.waits_for);
  return text;
}

// What the others wait for: a line for each operation, with its ranks.
std::string waiters_in_words(const std::vector<RankSight>& ranks, const std::vector<size_t>& culprits) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> by_operation;
  for (size_t at = 0; at < ranks.size(); ++at) {
    const bool is_culprit = std::find(culprits.begin(), culprits.end(), at) != culprits.end();
    if (is_culprit || ranks[at].pid < 0 || ranks[at].sight.waiting != Waiting::kPeers) continue;
    const std::string& operation = ranks[at].sight.waits_for;
    auto found = std::find_if(by_operation.begin(), by_operation.end(),
                              [&](const auto& entry) { return entry.first == operation; });
    if (found == by_operation.end()) found = by_operation.insert(by_operation.end(), {operation, {}});
    found->second.push_back(ranks[at].rank);
  }
  std::string text;
  for (const auto& [operation, waiting] : by_operation)
    text +=
        concat("; ", internal::ranks_in_words(waiting), waiting.size() == 1 ? " waits" : " wait", " in ", operation);
  return text;
}

std::string in_words(const RankSight& rank) {
  return concat("rank ", rank.rank, " (process ", rank.pid, " on ", host_name(), ") ", state_in_words(rank), " ",
                place_in_words(rank.sight), ", for ", format_printf("%.1f", rank.seconds_still), " s");
}

std::vector<size_t> least_advanced(const std::vector<RankSight>& ranks) {
  std::vector<size_t> least;
  const auto place = [&](size_t at) { return std::pair(ranks[at].sight.step, ranks[at].sight.progress); };
  for (size_t at = 0; at < ranks.size(); ++at) {
    if (!least.empty() && place(at) > place(least.front())) continue;
    if (!least.empty() && place(at) < place(least.front())) least.clear();
    least.push_back(at);
  }
  return least;
}

}  // namespace

std::optional<Hang> find_hang(const std::vector<RankSight>& ranks, const HangRules& rules,
                              std::optional<double> seconds_since_told) {
  if (rules.shortest <= 0) return std::nullopt;
  Hang hang;
  size_t num_running = 0, num_stopped = 0, num_waiting = 0, num_late = 0, num_late_at_end = 0;
  for (size_t at = 0; at < ranks.size(); ++at) {
    const RankSight& rank = ranks[at];
    if (rank.pid < 0) continue;
    ++num_running;
    const bool is_stopped = rank.state == 'T', waits = rank.sight.waiting == Waiting::kPeers && !is_stopped;
    // One that waited for long and is stopped now is not at fault for the wait, and somebody may be suspending the run:
    // the others are seen stopped a look later.
    const bool is_stopped_just_now = is_stopped && rank.seconds_stopped < rules.shortest;
    const bool is_late_now = is_late_at_end(rank, rules, seconds_since_told) && !waits && !is_stopped_just_now;
    const bool is_late = is_late_now || (rank.seconds_still >= bound_of(rank, rules) && !is_stopped_just_now);
    num_stopped += is_stopped;
    num_late_at_end += is_late_now;
    if (waits) {
      ++num_waiting;
      num_late += is_late;
    } else if (is_late && (is_stopped || rank.sight.waiting != Waiting::kOthers)) {
      hang.culprits.push_back(at);
    }
  }
  // Where some have ended already, the run is not suspended: those that are stopped keep it from its end.
  const bool are_stopped = num_running == ranks.size() && num_stopped == num_running;
  if (are_stopped && num_late_at_end < num_running) {
    hang.is_suspended = hang.culprits.size() == num_running;
    if (!hang.is_suspended) return std::nullopt;  // soon all of them will be late
  }
  if (hang.culprits.empty() && rules.has_all_ranks && num_running > 1 && num_waiting == ranks.size() &&
      num_late == num_waiting)
    hang.culprits = least_advanced(ranks);
  if (hang.culprits.empty()) return std::nullopt;
  for (const size_t culprit : hang.culprits) hang.text += (hang.text.empty() ? "" : "; ") + in_words(ranks[culprit]);
  hang.text += waiters_in_words(ranks, hang.culprits);
  return hang;
}

HangSenses HangSenses::of(const WhereaboutsBoard& board) {
  return {.now = now_seconds,
          .sight = [&board](int64_t local_rank) { return board.sight(local_rank); },
          .state = internal::state_of};
}

HangWatch::HangWatch(HangSenses senses, int64_t first_rank, const HangRules& rules)
    : senses_(std::move(senses)), first_rank_(first_rank), rules_(rules) {}

std::optional<Hang> HangWatch::look(const std::vector<pid_t>& pids, std::optional<double> seconds_since_told) {
  const double now = senses_.now();
  if (rules_.shortest <= 0 || now - last_look_ < kBetweenLooks) return std::nullopt;
  memories_.resize(pids.size());
  const double since_last = now - last_look_;
  for (Memory& memory : memories_) {  // what is known of them stays
    if (last_look_ < 0 || since_last > kLongPause) {
      memory.progress_at = memory.cpu_at = now;
      memory.stopped_at.reset();
    } else if (since_last > kOwnPause) {
      memory.progress_at += since_last;
      memory.cpu_at += since_last;
      if (memory.stopped_at) *memory.stopped_at += since_last;
    }
  }
  last_look_ = now;
  std::vector<RankSight> ranks(pids.size());
  for (size_t at = 0; at < pids.size(); ++at) {
    RankSight& rank = ranks[at];
    rank.rank = first_rank_ + static_cast<int64_t>(at);
    rank.pid = pids[at];
    if (rank.pid < 0) continue;
    rank.sight = senses_.sight(static_cast<int64_t>(at));
    Memory& memory = memories_[at];
    if (rank.sight.progress != memory.progress) {
      memory = {.progress = rank.sight.progress,
                .progress_at = now,
                .cpu_at = now,
                .cpu_ticks = memory.cpu_ticks,
                .stopped_at = {}};
      continue;
    }
    const internal::ProcessState state = senses_.state(rank.pid);
    if (state.cpu_ticks != memory.cpu_ticks) memory.cpu_ticks = state.cpu_ticks, memory.cpu_at = now;
    rank.state = state.state;
    if (rank.state != 'T' && memory.stopped_at) {  // it goes on
      memory.progress_at = memory.cpu_at = now;
      memory.stopped_at.reset();
    }
    if (rank.state == 'T' && !memory.stopped_at) memory.stopped_at = now;
    if (memory.stopped_at) rank.seconds_stopped = now - *memory.stopped_at;
    rank.seconds_still = now - memory.progress_at;
    rank.seconds_without_cpu = now - memory.cpu_at;
  }
  std::optional<Hang> hang = find_hang(ranks, rules_, seconds_since_told);
  if (std::any_of(ranks.begin(), ranks.end(), [](const RankSight& rank) { return rank.pid < 0 || rank.state != 'T'; }))
    said_suspended_ = false;
  if (hang && hang->is_suspended && std::exchange(said_suspended_, true)) return std::nullopt;
  return hang;
}

}  // namespace espalier::launch
