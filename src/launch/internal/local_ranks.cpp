#include "launch/internal/local_ranks.h"

#include <signal.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"

namespace espalier::launch::internal {

LocalRanks::LocalRanks(const Launch& launch, const Round& round, const Workers& workers)
    : launch_(launch),
      first_rank_(round.first_rank),
      board_(launch.options.num_local_ranks),
      hangs_(watch_for_hangs(round)),
      group_(workers(pump_, board_)) {
  serve_control(round);
}

std::unique_ptr<HangWatch> LocalRanks::watch_for_hangs(const Round& round) const {
  const HangRules rules = {.shortest = launch_.program.is_ours ? launch_.options.hang_timeout_seconds : 0,
                           .has_all_ranks = round.nodes.size() == 1};
  return std::make_unique<HangWatch>(HangSenses::of(board_), round.first_rank, rules);
}

int64_t LocalRanks::hold(double patience_seconds) {
  control_.reset();
  group_.hold(patience_seconds);
  return group_.num_held();
}

void LocalRanks::start_again(const Round& round, const Workers& workers) {
  first_rank_ = round.first_rank;
  hangs_ = watch_for_hangs(round);
  for (int64_t local_rank = 0; local_rank < launch_.options.num_local_ranks; ++local_rank)
    if (is_held(local_rank))
      board_.forget_wishes(local_rank);
    else
      board_.clear(local_rank);
  group_.start_again(workers(pump_, board_));
  serve_control(round);
}

// espalier ctl speaks with it; what it asks reaches the launcher as a signal does. None for other programs.
void LocalRanks::serve_control(const Round& round) {
  if (!launch_.program.is_ours) return;
  control_ = std::make_unique<Control>(ControlOptions{.board = board_,
                                                      .node = static_cast<int64_t>(round.node),
                                                      .first_rank = round.first_rank,
                                                      .num_local_ranks = launch_.options.num_local_ranks,
                                                      .world_size = round.world_size,
                                                      .first_host = round.nodes.front().address,
                                                      .stop = [] { kill(getpid(), SIGTERM); },
                                                      .kill = launch_.kill});
}

void LocalRanks::reap() {
  group_.reap();
  if (control_) control_->set_pids(group_.pids());
}

void LocalRanks::end_hung(const std::optional<ToldToEnd>& told) {
  std::optional<double> seconds;
  if (told) seconds = told->seconds_since;
  if (const auto hang = hangs_->look(group_.pids(), seconds)) end_hang(*hang, told ? told->by : "");
}

void LocalRanks::stop(int signal, double patience_seconds) {
  control_.reset();
  group_.stop(signal, patience_seconds);
}

void LocalRanks::finish_output() {
  control_.reset();
  pump_.finish();
}

// The rank that the others wait for is killed: they hear of it at once; otherwise they would wait for many minutes.
// Before that, all report where they are.
void LocalRanks::end_hang(const Hang& hang, const std::string& told_by) {
  const std::string run_folder = board_.sight(0).folder;
  if (hang.is_suspended) {
    const std::string what = concat("all ranks on this machine are stopped: ", hang.text,
                                    ". Waiting for SIGCONT; two more SIGTERMs within two seconds end the run, and one "
                                    "SIGTERM ends them if they are still stopped ",
                                    format_duration(bound_at_end()), " later.");
    log_warning(what);
    tell({.kind = Incident::Kind::kSuspended, .what = what, .run_folder = run_folder});
    return;
  }
  const std::string what =
      concat("the run hangs: ", hang.text, told_by.empty() ? "" : concat(". It was told to end: ", told_by));
  log_warning(what);
  const std::string stacks =
      note_stacks(what, run_folder, collect_stacks(board_, first_rank_, group_.pids(), Threads::kAll));
  tell({.kind = Incident::Kind::kHang, .what = concat(what, ". ", stacks), .run_folder = run_folder});
  for (const size_t culprit : hang.culprits) group_.end_hung(culprit, what);
}

// Where the run keeps its records, else beside the ranks' output.
std::string LocalRanks::note_stacks(const std::string& reason, const std::string& run_folder,
                                    const std::vector<RankStacks>& stacks) const {
  const std::string folder = !run_folder.empty()              ? run_folder
                             : launch_.files.folder_is_kept() ? launch_.files.folder()
                                                              : "";
  const std::string path = folder.empty() ? "" : write_stacks(folder, reason, stacks);
  const std::string text = concat("stacks", path.empty() ? "" : " (" + path + ")", ": ", stacks_summary(stacks));
  log_warning(text);
  if (folder.empty()) log_warning("all of them, as there is no folder for them:\n", stacks_text(stacks));
  return text;
}

void LocalRanks::tell(const Incident& incident) const {
  if (launch_.program.on_incident) launch_.program.on_incident(incident);
}

}  // namespace espalier::launch::internal
