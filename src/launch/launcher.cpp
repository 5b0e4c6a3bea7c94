#include "launch/launcher.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/sha256.h"
#include "launch/environment.h"
#include "launch/error_file.h"
#include "launch/internal/local_ranks.h"
#include "launch/internal/report_file.h"
#include "launch/internal/round_files.h"
#include "launch/internal/signals.h"
#include "launch/internal/socket.h"
#include "launch/node_meeting.h"
#include "launch/output.h"
#include "launch/rendezvous_client.h"
#include "launch/rendezvous_server.h"
#include "launch/restart_policy.h"
#include "launch/run_loop.h"
#include "launch/secret.h"
#include "launch/snapshot_memory.h"
#include "launch/worker_group.h"

namespace espalier::launch {
namespace {

class ThreadTask : public Task {
 public:
  explicit ThreadTask(std::function<void()> work) : thread_(std::move(work)) {}
  ~ThreadTask() override { thread_.join(); }

 private:
  std::thread thread_;
};

class RealSurroundings : public Surroundings {
 public:
  Time now() override { return std::chrono::steady_clock::now(); }
  double seconds_since_1970() override { return Seconds(std::chrono::system_clock::now().time_since_epoch()).count(); }
  void sleep_for(Seconds time) override { std::this_thread::sleep_for(time); }
  std::unique_ptr<Task> start(std::function<void()> work) override {
    return std::make_unique<ThreadTask>(std::move(work));
  }
  std::optional<int> wait_for_signal(double seconds) override { return signals_.wait(seconds); }
  int free_port() override { return internal::port_of(internal::listen_on("", 0)); }

 private:
  internal::TakenSignals signals_;
};

Node this_node(const LaunchOptions& options) {
  Node node;
  node.address = options.local_address;
  if (node.address.empty()) node.address = options.is_single_node() ? "127.0.0.1" : full_host_name();
  node.pid = getpid();
  node.id = concat(node.address, "-", node.pid, "-", hex_digits(random_bytes(4)));
  node.node_rank = options.node_rank;
  node.num_ranks = options.num_local_ranks;
  return node;
}

// What a launcher has: its rendezvous store, its connections to it, its ranks.
class LocalSite : public LaunchSite {
 public:
  LocalSite(const LaunchOptions& options, const RankProgram& program, Surroundings& surroundings)
      : options_(options), program_(program), start_(surroundings.now()), files_(options) {
    secret_ = options.is_single_node() && process_variables().count(kSecretVariable) == 0 ? new_secret()
                                                                                          : job_secret(options.run_id);
    store_ = {options.store_host, options.store_port, secret_,
              RendezvousClient::Milliseconds(static_cast<int64_t>(options.join_timeout_seconds * 1000)),
              host_in_words(options)};
    store_.before_each_try = [&surroundings] {
      const auto signal = surroundings.wait_for_signal(0);
      if (signal && internal::TakenSignals::ends(*signal))
        throw UserError(concat("stopped by SIG", sigabbrev_np(*signal), " before the launchers met"),
                        static_cast<ExitCode>(128 + *signal));
    };
    if (program.is_ours) hold_snapshots();
    host_store();
    client_ = std::make_unique<RendezvousClient>(store_);
    watching_client_ = std::make_unique<RendezvousClient>(store_);
  }
  ~LocalSite() override {
    client_.reset();
    watching_client_.reset();
    // The other launchers read the end of the round before the rendezvous store goes.
    for (int tries = 0; server_ && server_->num_clients() > 0 && tries < 1000; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  RendezvousClient& store() { return *client_; }
  RendezvousClient& watched_store() { return *watching_client_; }

  std::unique_ptr<Ranks> start(const Round& round, std::unique_ptr<Ranks> held) override {
    if (round.was_without_this_node) forget_snapshots();  // the run has gone on from them
    if (auto* const ranks = dynamic_cast<internal::LocalRanks*>(held.get())) {
      ranks->start_again(round, [&](OutputPump& pump, const WhereaboutsBoard& board) {
        return workers_of(round, pump, board, [ranks](int64_t local_rank) { return ranks->is_held(local_rank); });
      });
      return held;
    }
    const internal::LocalRanks::Launch launch = {options_, program_, files_, [this] {
                                                   kill_is_asked_ = true;
                                                   kill(getpid(), SIGTERM);
                                                 }};
    return std::make_unique<internal::LocalRanks>(launch, round, [&](OutputPump& pump, const WhereaboutsBoard& board) {
      return workers_of(round, pump, board, [](int64_t) { return false; });
    });
  }
  bool hosts_store() const override { return server_ != nullptr; }
  bool kill_is_asked() const override { return kill_is_asked_; }
  bool has_snapshots() const override { return snapshots_ && snapshots_->hold_any(); }
  void forget_snapshots() override {
    if (snapshots_) snapshots_->clear();
  }
  std::string kept_folder() const override { return files_.folder_is_kept() ? files_.folder() : ""; }
  void tell(const Incident& incident) override {
    if (program_.on_incident) program_.on_incident(incident);
  }
  void say_cause(const std::vector<Failure>& alike, const std::string& run_folder) override {
    const std::string page = cause_page(alike, run_folder),
                      path = run_folder.empty() ? "" : internal::write_report(run_folder, "cause", page);
    log_line(LogLevel::kQuiet, concat(page, path.empty() ? "" : concat("(this page is ", path, ")")));
  }

  void report(std::vector<Failure> failures) override {
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
      variables[kLaunchedAtVariable] = launched_at_text(start_);
      variables.erase(kMachinesMayChangeVariable);  // of a launcher around this one
      if (options_.min_nodes < options_.max_nodes) variables[kMachinesMayChangeVariable] = "1";
      variables[kWhereaboutsVariable] = board.variable(local_rank);
      variables[kSecretVariable] = secret_;
      if (snapshots_) variables[kSnapshotsVariable] = snapshots_->variable(local_rank);
    } else {
      variables.erase(kLaunchedAtVariable);  // of a launcher around this one
      if (options_.num_local_ranks > 1)
        variables.emplace("OMP_NUM_THREADS", "1");  // torchrun's way; our own ranks share the cores
    }
    return variables;
  }

  // `keeps_streams`: of which ranks the process remains.
  std::vector<Worker> workers_of(const Round& round, OutputPump& pump, const WhereaboutsBoard& board,
                                 const std::function<bool(int64_t)>& keeps_streams) const {
    const bool may_start_again = options_.max_restarts > 0 || options_.min_nodes < options_.max_nodes;
    std::vector<Worker> workers;
    for (int64_t local_rank = 0; local_rank < options_.num_local_ranks; ++local_rank) {
      Worker worker;
      worker.rank = round.first_rank + local_rank, worker.local_rank = local_rank;
      worker.command = program_.command;
      worker.variables = variables_of(round, local_rank, board);
      worker.error_file = files_.error_file(round.number, local_rank);
      worker.sight = [&board, local_rank] { return board.sight(local_rank); };
      worker.can_be_held = program_.is_ours && snapshots_ && may_start_again;
      if (keeps_streams(local_rank))
        files_.make_folder(round.number, local_rank);
      else
        files_.open(round.number, worker, pump);
      workers.push_back(std::move(worker));
    }
    return workers;
  }

  const LaunchOptions& options_;
  const RankProgram& program_;
  const Surroundings::Time start_;
  internal::RoundFiles files_;
  std::string secret_;
  RendezvousClient::Options store_;
  std::unique_ptr<RendezvousServer> server_;
  std::unique_ptr<RendezvousClient> client_, watching_client_;
  std::optional<SnapshotMemory> snapshots_;  // from start to start
  std::atomic<bool> kill_is_asked_{false};
};

}  // namespace

int run_launcher(const LaunchOptions& options, const RankProgram& program) {
  RealSurroundings surroundings;
  LocalSite site(options, program, surroundings);
  NodeMeeting meeting(options, {site.store(), site.watched_store(), surroundings}, this_node(options),
                      options.min_nodes < options.max_nodes ? program.fits : nullptr);
  return RunLoop(options, program, surroundings, meeting, site).run();
}

}  // namespace espalier::launch
