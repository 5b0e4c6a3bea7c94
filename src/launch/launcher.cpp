#include "launch/launcher.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/sha256.h"
#include "launch/control.h"
#include "launch/environment.h"
#include "launch/error_file.h"
#include "launch/hang_watch.h"
#include "launch/internal/report_file.h"
#include "launch/internal/round_files.h"
#include "launch/internal/signals.h"
#include "launch/internal/socket.h"
#include "launch/node_meeting.h"
#include "launch/output.h"
#include "launch/rendezvous_server.h"
#include "launch/restart_policy.h"
#include "launch/secret.h"
#include "launch/snapshot_memory.h"
#include "launch/stacks.h"
#include "launch/worker_group.h"

namespace espalier::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPatience = 30;  // seconds, for ranks to end once one has failed
constexpr auto kTimeToInsist = std::chrono::seconds(2);

class Launcher {
 public:
  Launcher(const LaunchOptions& options, const RankProgram& program)
      : options_(options), program_(program), files_(options), restarts_(options.max_restarts) {
    secret_ = options.is_single_node() && process_variables().count(kSecretVariable) == 0 ? new_secret()
                                                                                          : job_secret(options.run_id);
    store_ = {options.store_host, options.store_port, secret_,
              RendezvousClient::Milliseconds(static_cast<int64_t>(options.join_timeout_seconds * 1000)),
              host_in_words(options)};
    store_.before_each_try = [this] {
      const auto signal = signals_.poll();
      if (signal && internal::TakenSignals::ends(*signal))
        throw UserError(concat("stopped by SIG", sigabbrev_np(*signal), " before the launchers met"),
                        static_cast<ExitCode>(128 + *signal));
    };
    if (program.is_ours) hold_snapshots();
    host_store();
    meeting_ =
        std::make_unique<NodeMeeting>(options_, store_, options.min_nodes < options.max_nodes ? program.fits : nullptr);
  }
  ~Launcher() {
    meeting_.reset();
    // The other launchers read the end of the round before the rendezvous store goes.
    for (int tries = 0; server_ && server_->num_clients() > 0 && tries < 1000; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  int run() {
    while (true) {
      const std::optional<Round> round = meeting_->join([this] {
        if (const auto signal = signals_.poll(); signal && internal::TakenSignals::ends(*signal))
          ending_signal_ = *signal;
        return ending_signal_ != 0;
      });
      if (!round) {
        if (ending_signal_ != 0 && snapshots_)
          log_warning(
              "stopped before the ranks started again: copies of their state in memory, if there were any, are ",
              "lost; the newest checkpoint is what remains");
        if (ending_signal_ != 0) return 128 + ending_signal_;
        if (!meeting_->is_over_badly()) return 0;
        log_warning(
            "the run has ended while this machine waited: another launcher failed for good, or was told to stop");
        return static_cast<int>(ExitCode::kLostPeer);
      }
      const std::optional<int> exit_code = run_round(*round);
      if (!exit_code) continue;
      if (is_left_out_) stay_as_host();
      return *exit_code;
    }
  }

 private:
  static std::string host_in_words(const LaunchOptions& options) {
    if (options.is_single_node()) return "";
    return options.rendezvous == Rendezvous::kC10d ? "the launcher on the machine of --rdzv-endpoint"
                                                   : "the launcher of --node-rank 0";
  }

  // A run that wants it says so where there is none.
  void hold_snapshots() {
    try {
      snapshots_.emplace(options_.num_local_ranks);
    } catch (const UserError& error) {
      log_line(LogLevel::kDebug, error.what());
    }
  }

  void host_store() {
    const bool one_machine = options_.is_single_node();
    if (one_machine) store_.address = "127.0.0.1";
    bool hosts = one_machine || options_.node_rank == 0;
    const bool by_address = !one_machine && options_.rendezvous == Rendezvous::kC10d;
    if (by_address) hosts = options_.hosts_store.value_or(internal::is_local_address(options_.store_host));
    if (!hosts) return;
    const std::string listen_at = internal::is_loopback(store_.address) ? store_.address : "";
    try {
      server_ = std::make_unique<RendezvousServer>(RendezvousServer::Options{listen_at, options_.store_port, secret_});
      store_.port = server_->port();
    } catch (const UserError&) {
      // Several launchers on one machine: the first of them hosts. If it is no launcher, connecting will tell.
      if (!by_address || options_.hosts_store.value_or(false)) throw;
    }
  }

  std::map<std::string, std::string> variables_of(const Round& round, int64_t local_rank,
                                                  const WhereaboutsBoard& board) const {
    std::map<std::string, std::string> variables = process_variables();
    const std::string rank = std::to_string(round.first_rank + local_rank), world = std::to_string(round.world_size);
    const Node& first = round.nodes.front();
    const std::string address = options_.is_single_node() ? "127.0.0.1" : first.address;
    const int port = options_.master_port != 0 ? options_.master_port : first.free_port;
    const std::map<std::string, std::string> own = {
        {"RANK", rank},
        {"LOCAL_RANK", std::to_string(local_rank)},
        {"WORLD_SIZE", world},
        {"LOCAL_WORLD_SIZE", std::to_string(options_.num_local_ranks)},
        {"GROUP_RANK", std::to_string(round.node)},
        {"GROUP_WORLD_SIZE", std::to_string(round.nodes.size())},
        {"ROLE_RANK", rank},
        {"ROLE_NAME", options_.role},
        {"ROLE_WORLD_SIZE", world},
        {"MASTER_ADDR", program_.is_ours ? store_.address : address},
        {"MASTER_PORT", std::to_string(program_.is_ours ? store_.port : port)},
        {"TORCHELASTIC_RESTART_COUNT", std::to_string(round.number)},
        {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options_.max_restarts)},
        {"TORCHELASTIC_RUN_ID", options_.run_id},
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {kErrorFileVariable, files_.error_file(round.number, local_rank)}};
    for (const auto& [name, value] : own) variables[name] = value;
    if (program_.is_ours) {
      variables["ESPALIER_LAUNCH"] = "1";
      variables[kWhereaboutsVariable] = board.variable(local_rank);
      variables[kSecretVariable] = secret_;
      if (snapshots_) variables[kSnapshotsVariable] = snapshots_->variable(local_rank);
    } else if (options_.num_local_ranks > 1) {
      variables.emplace("OMP_NUM_THREADS", "1");  // torchrun's way; our own ranks share the cores
    }
    return variables;
  }

  std::vector<Worker> workers_of(const Round& round, OutputPump& pump, const WhereaboutsBoard& board) const {
    std::vector<Worker> workers;
    for (int64_t local_rank = 0; local_rank < options_.num_local_ranks; ++local_rank) {
      Worker worker;
      worker.rank = round.first_rank + local_rank, worker.local_rank = local_rank;
      worker.command = program_.command;
      worker.variables = variables_of(round, local_rank, board);
      worker.error_file = files_.error_file(round.number, local_rank);
      worker.sight = [&board, local_rank] { return board.sight(local_rank); };
      files_.open(round.number, worker, pump);
      workers.push_back(std::move(worker));
    }
    return workers;
  }

  void say_start(const Round& round) const {
    if (round.node != 0) return;
    const std::string again = round.number == 0 ? ""
                              : restart_ == 0
                                  ? " again"  // with other machines
                                  : concat(" again (restart ", restart_, " of ", options_.max_restarts, ")");
    log_info("starting ", round.world_size, round.world_size == 1 ? " rank" : " ranks", again, " on ",
             round.nodes.size(), round.nodes.size() == 1 ? " machine: " : " machines: ", program_.name,
             files_.folder_is_kept() ? "; the ranks' files are in " + files_.folder() : "");
  }

  // Launchers decide alike about restarts: what they remember begins anew with a machine that does not remember it.
  void forget_if_others(const Round& round) {
    std::set<std::string> machines;
    for (const Node& node : round.nodes) machines.insert(node.id);
    const bool all_know = round.number == std::exchange(last_round_, round.number) + 1 &&
                          std::includes(machines_.begin(), machines_.end(), machines.begin(), machines.end());
    if (!all_know) restarts_ = RestartPolicy(options_.max_restarts), restart_ = 0;
    machines_ = machines;
  }

  // The launcher's exit code; nothing if the group is to start again.
  std::optional<int> run_round(const Round& round) {
    forget_if_others(round);
    say_start(round);
    OutputPump pump;
    const WhereaboutsBoard board(options_.num_local_ranks);
    is_regroup_asked_ = false;
    first_step_.reset();
    HangWatch hangs(
        board, round.first_rank,
        {.shortest = program_.is_ours ? options_.hang_timeout_seconds : 0, .has_all_ranks = round.nodes.size() == 1});
    WorkerGroup group(workers_of(round, pump, board));
    std::unique_ptr<Control> control = serve_control(round, board);
    const RoundOutcome outcome = watch(round, board, group, hangs, control.get());
    control.reset();
    const bool all_well = outcome == RoundOutcome::kDone || outcome == RoundOutcome::kRegroups;
    if (!all_well) stop(group);
    pump.finish();
    if (outcome == RoundOutcome::kRegroups && ending_signal_ == 0) {
      restart_ = 0;
      return std::nullopt;
    }
    if (all_well) return 0;
    if (ending_signal_ != 0) return end_by_signal(group);
    if (outcome == RoundOutcome::kLostStore) return end_without_store(group);
    return end_or_restart(round, group, board.sight(0).folder);
  }

  // espalier ctl speaks with it; what it asks reaches the launcher as a signal does. None for other programs.
  std::unique_ptr<Control> serve_control(const Round& round, const WhereaboutsBoard& board) {
    if (!program_.is_ours) return nullptr;
    return std::make_unique<Control>(ControlOptions{.board = board,
                                                    .node = static_cast<int64_t>(round.node),
                                                    .first_rank = round.first_rank,
                                                    .num_local_ranks = options_.num_local_ranks,
                                                    .world_size = round.world_size,
                                                    .first_host = round.nodes.front().address,
                                                    .stop = [] { kill(getpid(), SIGTERM); },
                                                    .kill =
                                                        [this] {
                                                          kill_is_asked_ = true;
                                                          kill(getpid(), SIGTERM);
                                                        }});
  }

  // Until the round is over, a rank fails here, or a signal has ended all ranks.
  RoundOutcome watch(const Round& round, const WhereaboutsBoard& board, WorkerGroup& group, HangWatch& hangs,
                     Control* control) {
    bool reported = false;
    std::optional<Clock::time_point> deadline;
    while (true) {
      if (const auto signal = signals_.wait(options_.monitor_interval_seconds)) pass_on(*signal, group, deadline);
      group.reap();
      if (control != nullptr) control->set_pids(group.pids());
      if (const auto hang = hangs.look(group.pids())) end_hang(*hang, round, board, group);
      if (group.any_failed() && ending_signal_ == 0) return RoundOutcome::kFailed;
      if (group.any_failed() && !deadline)  // while ending: its peers may wait for it for ever
        deadline = Clock::now() +
                   std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience_after_failure()));
      if (round.node == 0 && ending_signal_ == 0) take_in_waiting(board, group);
      const bool ended = group.num_running() == 0;
      if (ended && group.all_well() && !reported) {
        meeting_->report_done();
        reported = true;
      }
      if (const RoundOutcome outcome = meeting_->outcome(); outcome != RoundOutcome::kRunning) return outcome;
      if (ending_signal_ != 0 && ended && !reported) return RoundOutcome::kFailed;
      if (deadline && Clock::now() >= *deadline) return RoundOutcome::kFailed;
      if (ending_signal_ != 0) say_who_is_awaited(group);
    }
  }

  // Of a run on fewer machines than it may have: those that have come meanwhile, as soon as it has made a step of its
  // own.
  void take_in_waiting(const WhereaboutsBoard& board, const WorkerGroup& group) {
    if (!program_.goes_on_after_stop || options_.min_nodes == options_.max_nodes) return;
    const Sight sight = board.sight(0);
    if (group.num_running() < std::ssize(group.pids()) || sight.phase != RunPhase::kTrain || is_regroup_asked_) return;
    if (!first_step_) first_step_ = sight.step;
    if (sight.step <= *first_step_ || Clock::now() - last_look_ < std::chrono::milliseconds(500)) return;
    last_look_ = Clock::now();
    const std::vector<Node> waiting = meeting_->larger_group(std::chrono::duration<double>(options_.last_call_seconds));
    if (waiting.empty()) return;
    std::string names;
    for (const Node& node : waiting) names += concat(names.empty() ? "" : ", ", node.address);
    log_info(names, waiting.size() == 1 ? " waits" : " wait", " to take part: the run saves and starts again with ",
             waiting.size() == 1 ? "it" : "them");
    meeting_->ask_to_regroup();
    is_regroup_asked_ = true;
    group.send(SIGTERM);
  }

  // The rank that the others wait for is killed: they hear of it at once; otherwise they would wait for many minutes.
  // Before that, all report where they are.
  void end_hang(const Hang& hang, const Round& round, const WhereaboutsBoard& board, WorkerGroup& group) const {
    const std::string run_folder = board.sight(0).folder;
    if (hang.is_suspended) {
      const std::string what = concat("all ranks on this machine are stopped: ", hang.text,
                                      ". Waiting for SIGCONT; two more SIGTERMs within two seconds end the run.");
      log_warning(what);
      tell({.kind = Incident::Kind::kSuspended, .what = what, .run_folder = run_folder});
      return;
    }
    const std::string what = concat("the run hangs: ", hang.text);
    log_warning(what);
    const std::string stacks =
        note_stacks(what, run_folder, collect_stacks(board, round.first_rank, group.pids(), Threads::kAll));
    tell({.kind = Incident::Kind::kHang, .what = concat(what, ". ", stacks), .run_folder = run_folder});
    for (const size_t culprit : hang.culprits) group.end_hung(culprit, what);
  }

  void tell(const Incident& incident) const {
    if (program_.on_incident) program_.on_incident(incident);
  }

  // Where the run keeps its records, else beside the ranks' output.
  std::string note_stacks(const std::string& reason, const std::string& run_folder,
                          const std::vector<RankStacks>& stacks) const {
    const std::string folder = !run_folder.empty() ? run_folder : files_.folder_is_kept() ? files_.folder() : "";
    const std::string path = folder.empty() ? "" : write_stacks(folder, reason, stacks);
    const std::string text = concat("stacks", path.empty() ? "" : " (" + path + ")", ": ", stacks_summary(stacks));
    log_warning(text);
    if (folder.empty()) log_warning("all of them, as there is no folder for them:\n", stacks_text(stacks));
    return text;
  }

  void say_who_is_awaited(const WorkerGroup& group) {
    if (Clock::now() - last_word_ < std::chrono::seconds(30)) return;
    last_word_ = Clock::now();
    log_info("still waiting for ", num_ranks(group), " to end");
  }

  static std::string num_ranks(const WorkerGroup& group) {
    const int64_t count = group.num_running();
    return concat(count, count == 1 ? " rank" : " ranks");
  }

  // Training that is told to stop saves first, however long that takes: a scheduler's own limit ends it if it must.
  std::optional<double> patience() const {
    if (options_.shutdown_timeout_seconds || program_.is_ours) return options_.shutdown_timeout_seconds;
    return kPatience;
  }
  double patience_after_failure() const { return options_.shutdown_timeout_seconds.value_or(kPatience); }

  void pass_on(int signal, const WorkerGroup& group, std::optional<Clock::time_point>& deadline) {
    if (signal == SIGCHLD) return;
    const std::string name = concat("SIG", sigabbrev_np(signal));
    if (!internal::TakenSignals::ends(signal)) {
      group.send(signal);
      log_info("passed ", name, " on to the ranks");
      return;
    }
    const Clock::time_point now = Clock::now(), before = std::exchange(last_ending_, now);
    if (kill_is_asked_) {
      log_warning("espalier ctl kill: killing ", num_ranks(group));
      ending_signal_ = signal;
      deadline = now;
      return;
    }
    last_word_ = now;
    if (++num_endings_ == 1) {
      try_to_tell([this] { meeting_->forget_to_regroup(); });
      group.send(signal);
      ending_signal_ = signal;
      if (const auto seconds = patience())
        deadline = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*seconds));
      log_info("passed ", name, " on; waiting ",
               patience() ? concat("up to ", format_duration(*patience())) : "as long as it takes", " for ",
               num_ranks(group), program_.is_ours ? " to save and end" : " to end");
    } else if (num_endings_ >= 3 && now - before <= kTimeToInsist) {
      log_warning(name, " again: killing ", num_ranks(group));
      deadline = now;
    } else {
      log_warning("still waiting for ", num_ranks(group), " to end; ", name,
                  " once more within two seconds kills them, and what is not saved is lost");
    }
  }

  // Ranks that failed at the same moment are noticed together, so that the cause is among them.
  void stop(WorkerGroup& group) {
    if (ending_signal_ == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      group.reap();
    }
    try_to_tell([this] { meeting_->report_failed(); });
    group.stop(SIGTERM, ending_signal_ != 0 ? 0 : patience_after_failure());
    try_to_tell([&] { meeting_->report_stopped(group.failures()); });
  }

  // The store may be gone along with the machine that hosts it: this machine's ranks stop all the same.
  template <class Tell>
  static void try_to_tell(const Tell& tell) {
    try {
      tell();
    } catch (const UserError& error) {
      warn_once(error.what());
    }
  }

  int end_by_signal(const WorkerGroup& group) const {
    try_to_tell([&] { meeting_->report_over(group.all_well()); });
    if (group.all_well()) return 0;
    for (const Failure& failure : group.failures())
      if (!failure.error_file.empty()) return report(group.failures());
    log_info("stopped by SIG", sigabbrev_np(ending_signal_));
    return 128 + ending_signal_;
  }

  int end_without_store(const WorkerGroup& group) const {
    log_warning("lost the rendezvous store at ", store_.address, ":", store_.port,
                ": the launcher that hosts it has ended. The ranks here are stopped.");
    return group.any_failed() ? report(group.failures()) : static_cast<int>(ExitCode::kLostPeer);
  }

  std::optional<int> end_or_restart(const Round& round, const WorkerGroup& group, const std::string& run_folder) {
    std::vector<Failure> failures = group.failures();
    try_to_tell([&] { failures = meeting_->collect_failures(patience_after_failure() + 10); });
    if (failures.empty()) {
      log_warning("the ranks were stopped because another machine's failed; it has not said why");
      return static_cast<int>(ExitCode::kLostPeer);
    }
    const Failure& cause = failures.front();
    // The same options would be refused again.
    const bool is_refused =
        program_.is_ours && cause.signal == 0 && cause.exit_code == static_cast<int>(ExitCode::kUsage);
    RestartDecision decision = restarts_.decide(cause);
    if (is_refused) decision.starts_again = false;
    if (!decision.starts_again && !is_refused && shrinks(round, cause)) {
      if (round.node == 0 && !cause.lost_machine) tell_left_out(cause, run_folder, failures);
      if (!cause.lost_machine && is_here(round, cause)) {
        log_warning("rank ", cause.rank, " on ", cause.host, " failed (", describe(cause),
                    ") as often as is allowed: this machine takes part no more, the others go on without it");
        is_left_out_ = true;
        return report(failures);
      }
      restarts_ = RestartPolicy(options_.max_restarts);
      decision = {.starts_again = true, .restart = 0, .trusts_memory = true, .alike = {}};
    }
    restart_ = decision.restart;
    const std::string what = concat("rank ", cause.rank, " on ", cause.host, " failed (", describe(cause), "); ");
    if (round.node == 0)
      tell({.what =
                what + (decision.starts_again ? concat("restart ", restart_, " of ", options_.max_restarts, " follows")
                        : decision.alike.empty()
                            ? std::string("the run has ended")
                            : concat("the same fault came ", decision.alike.size(), " times, and the run has ended")),
            .run_folder = run_folder,
            .starts_again = decision.starts_again,
            .failures = failures});
    if (decision.starts_again) {
      log_info(what, "starting all ranks again",
               decision.wait_seconds > 0
                   ? concat(" in ", decision.wait_seconds, " s, as they got no further than before")
                   : "");
      if (snapshots_ && !decision.trusts_memory) snapshots_->clear();
      wait_before_restart(decision.wait_seconds);
      return std::nullopt;
    }
    try_to_tell([this] { meeting_->report_over(/*well=*/false); });
    if (!decision.alike.empty() && round.node == 0) say_cause(decision.alike, run_folder);
    if (group.any_failed() || round.node == 0) return report(failures);
    log_info("rank ", cause.rank, " on ", cause.host, " failed first (", describe(cause),
             "); the launcher there tells more");
    return exit_code_of(cause);
  }

  static bool is_here(const Round& round, const Failure& cause) {
    return cause.rank >= round.first_rank && cause.rank < round.first_rank + round.nodes[round.node].num_ranks;
  }

  // Whether the machine of the failure is lost for good, and the others are enough. What a rank does by itself, it
  // would do elsewhere as well.
  bool shrinks(const Round& round, const Failure& cause) const {
    const bool is_of_machine = cause.lost_machine || cause.signal != 0;
    return is_of_machine && is_from_outside(cause) && std::ssize(round.nodes) > options_.min_nodes;
  }

  void tell_left_out(const Failure& cause, const std::string& run_folder, const std::vector<Failure>& failures) const {
    tell({.what = concat("rank ", cause.rank, " on ", cause.host, " failed (", describe(cause),
                         ") as often as is allowed; the run goes on without that machine"),
          .run_folder = run_folder,
          .starts_again = true,
          .failures = failures});
  }

  // The others need the rendezvous store.
  void stay_as_host() {
    if (!server_) return;
    log_info("this launcher stays until the run is over, for its rendezvous store");
    meeting_->wait_until_over([this] {
      if (const auto signal = signals_.poll(); signal && internal::TakenSignals::ends(*signal))
        ending_signal_ = *signal;
      return ending_signal_ != 0;
    });
  }

  // A signal that ends the launcher is heard when it meets the others, or here.
  void wait_before_restart(double seconds) {
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    while (Clock::now() < end && ending_signal_ == 0)
      if (const auto signal = signals_.wait(0.1); signal && internal::TakenSignals::ends(*signal))
        ending_signal_ = *signal;
  }

  static void say_cause(const std::vector<Failure>& alike, const std::string& run_folder) {
    const std::string page = cause_page(alike, run_folder),
                      path = run_folder.empty() ? "" : internal::write_report(run_folder, "cause", page);
    log_line(LogLevel::kQuiet, concat(page, path.empty() ? "" : concat("(this page is ", path, ")")));
  }

  int report(std::vector<Failure> failures) const {
    sort_by_cause(failures);
    if (!files_.folder_is_kept())
      for (Failure& failure : failures) failure.error_file.clear();  // the message is in the report
    const std::string text = failure_report(program_.name, failures);
    for (std::string_view rest = text; !rest.empty();) {
      const ssize_t written = write(STDERR_FILENO, rest.data(), rest.size());
      if (written < 0 && errno != EINTR) break;  // nobody reads it; the exit code suffices
      if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
    }
    const Failure& cause = failures.front();
    leave_error_for_launcher(concat("rank ", cause.rank, " failed: ", describe(cause)),
                             exit_code_of(cause));  // of this launcher
    return exit_code_of(cause);
  }

  const LaunchOptions& options_;
  const RankProgram& program_;
  internal::TakenSignals signals_;
  internal::RoundFiles files_;
  std::string secret_;
  RendezvousClient::Options store_;
  std::unique_ptr<RendezvousServer> server_;
  std::unique_ptr<NodeMeeting> meeting_;
  RestartPolicy restarts_;
  int64_t restart_ = 0;             // its number since a step was gained
  std::set<std::string> machines_;  // of the last round that this launcher took part in, by id
  int64_t last_round_ = -1;
  bool is_regroup_asked_ = false, is_left_out_ = false;
  std::optional<int64_t> first_step_;        // of this round
  Clock::time_point last_look_;              // for machines that wait
  std::optional<SnapshotMemory> snapshots_;  // from start to start
  std::atomic<bool> kill_is_asked_{false};
  int ending_signal_ = 0, num_endings_ = 0;
  Clock::time_point last_ending_, last_word_;
};

}  // namespace

int run_launcher(const LaunchOptions& options, const RankProgram& program) {
  Launcher launcher(options, program);
  return launcher.run();
}

}  // namespace espalier::launch
