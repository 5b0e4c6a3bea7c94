#include "tests/control_plane/cluster.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "launch/node_meeting.h"
#include "launch/run_loop.h"
#include "tests/control_plane/simulated_ranks.h"
#include "tests/control_plane/simulated_store.h"
#include "tests/control_plane/simulated_training.h"
#include "tests/control_plane/simulated_watch.h"

namespace espalier::control_plane {
namespace {

using launch::Incident;
using launch::Round;

constexpr double kTimeToEnd = 3600;  // after the last fault

std::string key(int64_t round, const std::string& name) { return concat("launch/", round, "/", name); }

class FiberTask : public launch::Task {
 public:
  FiberTask(Fibers& fibers, std::shared_ptr<Fiber> fiber) : fibers_(fibers), fiber_(std::move(fiber)) {}
  ~FiberTask() override { fibers_.join(fiber_.get()); }

 private:
  Fibers& fibers_;
  std::shared_ptr<Fiber> fiber_;
};

// One launcher.
struct Process {
  int number = 0, machine = 0;
  std::deque<int> signals;
  Fiber* awaits_signal = nullptr;
  SimulatedRanks* ranks = nullptr;
  bool is_alive = true, is_cut_off = false, was_told_to_end = false;
  int exit_code = -1;
  int64_t last_round = -1;
};

class SimulatedSurroundings : public launch::Surroundings {
 public:
  SimulatedSurroundings(SimulatedTraining& training, Process& process) : training_(training), process_(process) {}
  Time now() override { return Time(std::chrono::nanoseconds(training_.fibers().now() + 1000 * kSecond)); }
  double seconds_since_1970() override { return training_.seconds_since_1970(); }
  void sleep_for(Seconds time) override { training_.fibers().sleep(nanoseconds(time.count())); }
  std::unique_ptr<launch::Task> start(std::function<void()> work) override {
    Fibers& fibers = training_.fibers();
    return std::make_unique<FiberTask>(fibers, fibers.start(process_.number, std::move(work)));
  }
  std::optional<int> wait_for_signal(double seconds) override {
    if (process_.signals.empty() && seconds > 0) {
      process_.awaits_signal = training_.fibers().current();
      training_.fibers().wait(training_.fibers().now() + nanoseconds(seconds));
      process_.awaits_signal = nullptr;
    }
    if (process_.signals.empty()) return std::nullopt;
    const int signal = process_.signals.front();
    process_.signals.pop_front();
    return signal;
  }
  int free_port() override { return 20000; }

 private:
  SimulatedTraining& training_;
  Process& process_;
};

class Cluster {
 public:
  Cluster(const Scenario& scenario, bool shows)
      : scenario_(scenario),
        shows_(shows),
        random_(scenario.seed ^ 0x5EEDULL),
        store_(fibers_, random_, scenario.network),
        training_(fibers_, random_, scenario),
        watch_(training_, scenario.watch_patience_seconds, [this](const std::string& what) { violate(what); }) {
    training_.set_recorder([this](const std::string& event) { watch_.note_event(event); });
  }

  Verdict run();
  void check_start(Process& process, const Round& round);
  void violate(const std::string& what);
  void say(const std::string& what) const;
  void wait_for_burial(const Process& process);
  void signal(Process& process, int signal);
  void note(const Process& process, const Incident& incident);
  SimulatedTraining& training() { return training_; }
  bool has_copies() const { return scenario_.holds_ranks && training_.has_copies(); }

 private:
  void watch();
  void start_launcher(int machine);
  int launch(Process& process);
  bool connects(Process& process);
  void kill(Process& process);
  void happen(const Fault& fault);
  Process* process_on(int machine);
  void kill_a_rank_of_bad(int number, int64_t round);
  std::optional<int64_t> last_begun(int64_t before) const;
  void check_former_come_first(const std::string& who, const Round& round);
  void check_what_is_known(const std::string& who, const Process& process, const Round& round);
  void check_end();
  void check_codes();
  double time_to_end_once_told() const;
  void check_told_have_ended(size_t count, Nanoseconds told_at);
  bool must_complete() const;

  const Scenario& scenario_;
  const bool shows_;
  Fibers fibers_;
  Random random_;
  SimulatedStore store_;
  SimulatedTraining training_;
  SimulatedWatch watch_;
  double last_fault_ = 0, ended_ = 0;  // the last launcher
  Nanoseconds last_end_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<std::pair<int64_t, int64_t>, std::string> histories_;  // by run and round
  std::string violation_;
};

class SimulatedSite : public launch::LaunchSite {
 public:
  // Of a launcher's process, which knows what runs.
  class Part : public SimulatedRanks {
   public:
    Part(Cluster& cluster, Process& process, const Round& round)
        : SimulatedRanks(cluster.training(), round,
                         {.hear_of_end = [&cluster, &process] { cluster.signal(process, SIGCHLD); },
                          .say = [&cluster](const std::string& what) { cluster.say(what); },
                          .violate = [&cluster](const std::string& what) { cluster.violate(what); }}),
          cluster_(cluster),
          process_(process) {
      process.ranks = this;
    }
    ~Part() override { process_.ranks = nullptr; }
    void stop(int signal, double patience_seconds) override {
      SimulatedRanks::stop(signal, patience_seconds);
      cluster_.wait_for_burial(process_);
    }
    int64_t hold(double patience_seconds) override {
      const int64_t count = SimulatedRanks::hold(patience_seconds);
      cluster_.wait_for_burial(process_);
      return count;
    }

   private:
    Cluster& cluster_;
    Process& process_;
  };

  SimulatedSite(Cluster& cluster, Process& process) : cluster_(cluster), process_(process) {}
  std::unique_ptr<launch::Ranks> start(const Round& round, std::unique_ptr<launch::Ranks> held) override {
    cluster_.check_start(process_, round);
    held.reset();  // its processes go on in the new part
    return std::make_unique<Part>(cluster_, process_, round);
  }
  bool hosts_store() const override { return process_.machine == 0; }
  bool kill_is_asked() const override { return false; }
  bool has_snapshots() const override { return cluster_.has_copies(); }
  void forget_snapshots() override { cluster_.training().forget_memory(); }
  std::string kept_folder() const override { return ""; }
  void tell(const Incident& incident) override { cluster_.note(process_, incident); }
  void say_cause(const std::vector<launch::Failure>&, const std::string&) override {}
  void report(std::vector<launch::Failure>) override {}

 private:
  Cluster& cluster_;
  Process& process_;
};

void Cluster::say(const std::string& what) const {
  if (shows_) std::fprintf(stderr, "%10.4f %s\n", static_cast<double>(fibers_.now()) * 1e-9, what.c_str());
}

void Cluster::violate(const std::string& what) {
  say("VIOLATION: " + what);
  if (violation_.empty()) violation_ = concat("at ", static_cast<double>(fibers_.now()) * 1e-9, " s: ", what);
}

// Ranks in the hands of a disk that does not answer.
void Cluster::wait_for_burial(const Process& process) {
  const auto found = scenario_.burial_seconds.find(process.machine);
  if (found != scenario_.burial_seconds.end()) fibers_.sleep(nanoseconds(found->second));
}

void Cluster::note(const Process& process, const Incident& incident) {
  say(concat("launcher ", process.number, " tells: ", incident.what));
  watch_.note_incident(incident);
}

// Until it would have told of an end as well.
void Cluster::watch() {
  const double now = seconds_of(fibers_.now());
  watch_.look(now);
  const bool any_runs =
      std::any_of(processes_.begin(), processes_.end(), [](const auto& process) { return process->is_alive; });
  if (any_runs) ended_ = now;
  if (now < std::max(ended_, last_fault_) + watch_.seconds_to_tell())
    fibers_.at(fibers_.now() + nanoseconds(SimulatedWatch::kLook), [this] { watch(); });
  else
    watch_.check_end();
}

void Cluster::signal(Process& process, int signal) {
  const bool is_known = std::find(process.signals.begin(), process.signals.end(), signal) != process.signals.end();
  if (!is_known) process.signals.push_back(signal);  // of a kind one at most is pending
  if (process.awaits_signal != nullptr) fibers_.wake(std::exchange(process.awaits_signal, nullptr));
}

Process* Cluster::process_on(int machine) {
  for (const auto& process : processes_)
    if (process->machine == machine && process->is_alive) return process.get();
  return nullptr;
}

void Cluster::start_launcher(int machine) {
  if (process_on(machine) != nullptr) return;
  auto& process = *processes_.emplace_back(std::make_unique<Process>());
  process.number = static_cast<int>(processes_.size()) - 1;
  process.machine = machine;
  say(concat("launcher ", process.number, " starts on machine ", machine));
  if (machine == 0) store_.open(), training_.begin_new_run();
  fibers_.start(process.number, [this, &process] {
    const int exit_code = launch(process);
    if (fibers_.is_killed()) return;
    process.exit_code = exit_code;
    process.is_alive = false;
    last_end_ = fibers_.now();
    say(concat("launcher ", process.number, " ends with ", process.exit_code));
    if (process.machine != 0) return;
    for (int tries = 0; store_.num_clients(process.number) > 0 && tries < 1000; ++tries) fibers_.sleep(kSecond / 100);
    store_.close();
  });
}

// The store may come later.
bool Cluster::connects(Process& process) {
  const Nanoseconds deadline = fibers_.now() + nanoseconds(scenario_.options.join_timeout_seconds);
  while (!store_.is_open() && fibers_.now() < deadline) {
    fibers_.sleep(kSecond / 2);
    for (; !process.signals.empty(); process.signals.pop_front())
      if (process.signals.front() == SIGTERM) return false;
  }
  return store_.is_open();
}

int Cluster::launch(Process& process) {
  if (!connects(process)) return process.was_told_to_end ? 128 + SIGTERM : static_cast<int>(ExitCode::kLostPeer);
  launch::LaunchOptions options = scenario_.options;
  options.node_rank = process.machine;
  SimulatedSurroundings surroundings(training_, process);
  SimulatedClient store(store_, process.number), watched(store_, process.number);
  launch::Node self;
  self.address = concat("machine", process.machine);
  self.pid = 100 + process.number;
  self.id = concat(self.address, "-", self.pid);
  self.node_rank = process.machine;
  self.num_ranks = options.num_local_ranks;
  launch::FitsRanks fits;
  if (options.min_nodes < options.max_nodes)
    fits = [this](int64_t num_ranks) {
      return scenario_.fit_counts.count(num_ranks / scenario_.options.num_local_ranks) != 0;
    };
  launch::RankProgram program;
  program.goes_on_after_stop = scenario_.goes_on_after_stop;
  SimulatedSite site(*this, process);
  try {
    launch::NodeMeeting meeting(options, {store, watched, surroundings}, self, fits);
    return launch::RunLoop(options, program, surroundings, meeting, site).run();
  } catch (const UserError& error) {
    say(concat("launcher ", process.number, ": error: ", error.what()));
    return static_cast<int>(error.code());
  }
}

void Cluster::check_start(Process& process, const Round& round) {
  say(concat("launcher ", process.number, " starts ranks of round ", round.number, " as machine ", round.node, " of ",
             round.nodes.size()));
  const std::string who = concat("launcher ", process.number, ", round ", round.number, ": ");
  if (round.number <= process.last_round) violate(concat(who, "it was in round ", process.last_round, " before"));
  check_what_is_known(who, process, round);
  process.last_round = round.number;
  int64_t first_rank = 0;
  std::set<std::string> ids;
  std::vector<std::string> list;
  for (size_t at = 0; at < round.nodes.size(); ++at) {
    if (at == round.node && round.first_rank != first_rank) violate(who + "its first rank is not where it should be");
    first_rank += round.nodes[at].num_ranks;
    list.push_back(round.nodes[at].id);
    ids.insert(round.nodes[at].id);
  }
  if (ids.size() != list.size()) violate(who + "a machine is there twice");
  if (round.world_size != first_rank) violate(who + "the number of ranks is wrong");
  if (round.nodes[round.node].pid != 100 + process.number) violate(who + "it is not itself");
  const auto count = std::ssize(list);
  if (count < scenario_.options.min_nodes || count > scenario_.options.max_nodes ||
      scenario_.fit_counts.count(count) == 0)
    violate(concat(who, count, " machines are not allowed"));
  const auto& groups = training_.groups();
  if (const auto found = groups.find({training_.run(), round.number}); found != groups.end()) {
    if (found->second.machines != list) violate(who + "others have another list of machines");
    if (found->second.parts[round.node] != nullptr) violate(who + "two are the same machine");
  }
  for (const auto& other : processes_)
    if (other->ranks != nullptr && other->ranks->any_runs() && other->ranks->run() == training_.run() &&
        other->ranks->round() != round.number && !other->is_cut_off)
      violate(concat(who, "ranks of round ", other->ranks->round(), " still run at launcher ", other->number));
  const auto over = store_.time_of("launch/over"), agreed = store_.time_of(key(round.number, "world"));
  if (over && agreed && *over < *agreed) violate(who + "the run was over before");
  check_former_come_first(who, round);
  if (scenario_.bad_machines.count(process.machine) != 0)
    fibers_.at(fibers_.now() + nanoseconds(random_.between(0, 5)),
               [this, number = process.number, at = round.number] { kill_a_rank_of_bad(number, at); });
}

// Of the rounds before that one.
std::optional<int64_t> Cluster::last_begun(int64_t before) const {
  for (int64_t number = before - 1; number >= 0; --number)
    if (store_.value(key(number, "begins")) == "yes") return number;
  return std::nullopt;
}

// All of a round know the same of failures, and each whether ranks ran without it since it took part: its copies of
// their state are old then.
void Cluster::check_what_is_known(const std::string& who, const Process& process, const Round& round) {
  const auto known = histories_.try_emplace({training_.run(), round.number}, round.history).first;
  if (known->second != round.history) violate(who + "others know of other failures");
  if (process.last_round < 0) return;
  const bool was_without = last_begun(round.number) != process.last_round;
  if (round.was_without_this_node != was_without)
    violate(who + (was_without ? "ranks ran without it, and it does not know"
                               : "it takes its copies for old, but no ranks ran without it"));
}

// Of the machines of the last round that began each that has neither left nor come too late is in this one, or nobody
// new is.
void Cluster::check_former_come_first(const std::string& who, const Round& round) {
  const auto number = last_begun(round.number);
  if (!number) return;
  const auto last = training_.groups().find({training_.run(), *number});
  const auto agreed = store_.time_of(key(round.number, "world")), first = store_.time_of(key(round.number, "arrived"));
  if (last == training_.groups().end() || !agreed || !first) return;
  const std::vector<std::string>& former = last->second.machines;
  const auto is_new = [&](const launch::Node& node) {
    return std::find(former.begin(), former.end(), node.id) == former.end();
  };
  if (std::none_of(round.nodes.begin(), round.nodes.end(), is_new)) return;
  const bool was_last_call = *agreed - *first >= nanoseconds(scenario_.options.last_call_seconds);
  const Nanoseconds on_the_way = nanoseconds(1 + 8 * scenario_.network.latest);  // of a word, until all have heard it
  for (const auto& process : processes_) {
    const std::string id = concat("machine", process->machine, "-", 100 + process->number);
    const bool was_there = std::find(former.begin(), former.end(), id) != former.end(),
               is_there =
                   std::any_of(round.nodes.begin(), round.nodes.end(), [&](const auto&node) { return node.id == id; });
    bool has_left = !process->is_alive || process->is_cut_off || process->was_told_to_end;
    for (int64_t at = *number; at <= round.number; ++at) has_left = has_left || store_.has(key(at, "left/" + id));
    if (!was_there || is_there || has_left) continue;
    const auto came = store_.time_of(key(round.number, "node/" + id));
    if (!was_last_call || (came && *came + on_the_way < *agreed))
      violate(concat(who, "another machine has the place of ", id, ", which was there before"));
  }
}

void Cluster::kill_a_rank_of_bad(int number, int64_t round) {
  Process& process = *processes_[static_cast<size_t>(number)];
  if (process.ranks == nullptr || process.ranks->round() != round) return;
  if (const auto rank = process.ranks->running_rank(random_)) process.ranks->fault(*rank, SIGKILL, 0);
}

void Cluster::kill(Process& process) {
  process.is_alive = false;
  process.awaits_signal = nullptr;
  store_.disconnect_all_of(process.number);
  fibers_.kill(process.number);
  if (process.machine == 0) store_.close();
}

void Cluster::happen(const Fault& fault) {
  say(concat("machine ", fault.machine, ": ", to_string(fault.kind)));
  if (fault.kind == FaultKind::kMachineBack) {
    start_launcher(fault.machine);
    return;
  }
  if (fault.kind == FaultKind::kTermToAll) {
    for (const auto& process : processes_)
      if (process->is_alive) process->was_told_to_end = true, signal(*process, SIGTERM);
    check_told_have_ended(processes_.size(), fibers_.now());
    return;
  }
  Process* process = process_on(fault.machine);
  if (fault.kind == FaultKind::kRankHangs && (process == nullptr || process->ranks == nullptr))
    training_.hangs_to_come(fault.machine).push_back(fault.hang);
  if (process == nullptr) return;
  if (fault.kind == FaultKind::kLauncherKilled) kill(*process);
  if (fault.kind == FaultKind::kTerm) process->was_told_to_end = true, signal(*process, SIGTERM);
  if (fault.kind == FaultKind::kUsr1) process->was_told_to_end = true, signal(*process, SIGUSR1);
  if (fault.kind == FaultKind::kRankHangs && process->ranks != nullptr) process->ranks->plant(fault.hang);
  if (fault.kind == FaultKind::kCutOff && fault.machine != 0) {
    process->is_cut_off = true;
    store_.cut_off(process->number, random_.between(0, 5), random_.between(0, 5));
  }
  const bool is_of_rank = fault.kind == FaultKind::kRankKilled || fault.kind == FaultKind::kRankFails;
  if (!is_of_rank || process->ranks == nullptr) return;
  const bool is_killed = fault.kind == FaultKind::kRankKilled;
  if (const auto rank = process->ranks->running_rank(random_))
    process->ranks->fault(*rank, is_killed ? SIGKILL : 0, is_killed ? 0 : 1);
}

// All of them, whatever hangs: that is named, or the others give up; then they have half a minute, and each waits for
// the others' word.
double Cluster::time_to_end_once_told() const {
  const launch::LaunchOptions& options = scenario_.options;
  // Ranks that were all stopped, which is said, go on before one of them hangs: it is then known for such a stretch.
  const double let_go = training_.longest_pause(), pause = std::max(scenario_.longest_pause(), let_go);
  const double to_name = let_go +
                         std::max({60.0, options.hang_timeout_seconds, 10 * std::max(pause, scenario_.step_seconds)}),
               to_give_up = scenario_.exchange_timeout_seconds + scenario_.step_seconds + scenario_.load_seconds;
  const bool may_be_in_exchange = std::any_of(scenario_.faults.begin(), scenario_.faults.end(), [](const Fault& fault) {
    return fault.hang.kind == HangKind::kExchange;
  });
  const bool is_named = options.hang_timeout_seconds > 0 && !may_be_in_exchange;
  return (is_named ? to_name : std::max(to_name, to_give_up + pause)) + 2 * options.patience_after_failure() + 30 +
         60 * scenario_.network.latest;
}

// Once that time is over, which a pause meanwhile makes longer.
void Cluster::check_told_have_ended(size_t count, Nanoseconds told_at) {
  if (const Nanoseconds end = told_at + nanoseconds(time_to_end_once_told()); fibers_.now() < end) {
    fibers_.at(end, [this, count, told_at] { check_told_have_ended(count, told_at); });
    return;
  }
  for (size_t number = 0; number < count; ++number)
    if (processes_[number]->is_alive && processes_[number]->was_told_to_end)
      violate(concat("launcher ", number, " was told to end long ago"));
}

bool Cluster::must_complete() const {
  if (training_.has_timed_out_early()) return false;  // a lost peer is one of --max-restarts, whoever is left
  std::set<int> hurt = scenario_.bad_machines;
  for (const Fault& fault : scenario_.faults) {
    const bool is_outside = fault.kind == FaultKind::kRankKilled || fault.kind == FaultKind::kLauncherKilled ||
                            fault.kind == FaultKind::kMachineBack || fault.kind == FaultKind::kRankHangs;
    if (!is_outside) return false;
    if (fault.machine == 0 && fault.kind == FaultKind::kLauncherKilled) return false;
    hurt.insert(fault.machine);
  }
  int64_t num_unhurt = 0;  // of those that are there from the beginning
  for (int machine = 0; machine < scenario_.num_machines; ++machine)
    num_unhurt += hurt.count(machine) == 0 && scenario_.starts[static_cast<size_t>(machine)] <= 2 ? 1 : 0;
  const launch::LaunchOptions& options = scenario_.options;
  const bool may_replace = scenario_.num_machines == options.max_nodes || options.min_nodes < options.max_nodes;
  return scenario_.bad_step < 0 && may_replace && options.last_call_seconds >= 2 && num_unhurt >= options.min_nodes;
}

void Cluster::check_end() {
  for (const auto& process : processes_)
    if (process->is_alive) violate(concat("launcher ", process->number, " has not ended"));
  const bool anybody_told =
      std::any_of(processes_.begin(), processes_.end(), [](const auto& process) { return process->was_told_to_end; });
  for (const auto& process : processes_)
    if (process->exit_code == 0 && !training_.is_complete() && !(anybody_told && training_.has_stopped_well()))
      violate(concat("launcher ", process->number, " ends with 0, but the training is not complete"));
  if (must_complete() && !training_.is_complete())
    violate("enough machines were left, but the training did not complete");
  const bool is_quiet = scenario_.faults.empty() && scenario_.bad_machines.empty() && scenario_.bad_step < 0 &&
                        scenario_.network.late == 0;  // a late machine is taken in by a start of its own
  const double last_start = *std::max_element(scenario_.starts.begin(), scenario_.starts.end());
  if (is_quiet && (!training_.is_complete() ||
                   (last_start < scenario_.options.last_call_seconds && training_.groups().size() != 1)))
    violate("nothing happened, but it took more than one start");
  const int64_t bound = (scenario_.options.max_restarts + 2) * (std::ssize(processes_) + 2) + training_.num_gains();
  if (std::ssize(training_.groups()) > bound)
    violate(concat(training_.groups().size(), " starts, at most ", bound, " were to be"));
  check_codes();
}

// Of those that were in the last round, and that nobody told to end or cut off.
void Cluster::check_codes() {
  // Who stops its ranks too late has a failure that the others do not know.
  if (training_.groups().empty() || scenario_.options.min_nodes < scenario_.options.max_nodes ||
      !scenario_.burial_seconds.empty() || scenario_.has(FaultKind::kTerm) || scenario_.has(FaultKind::kTermToAll) ||
      scenario_.has(FaultKind::kCutOff))
    return;
  const bool lost_host = std::any_of(processes_.begin(), processes_.end(), [](const auto& process) {
    return process->machine == 0 && process->exit_code == -1;
  });
  if (lost_host || training_.run() > 1) return;
  const int64_t last = training_.groups().rbegin()->second.round;
  std::set<int> codes;
  bool lost_one = false;  // before it has said that all is well, or after
  for (const auto& process : processes_) {
    lost_one = lost_one || (process->last_round == last && process->exit_code == -1);
    if (process->last_round == last && process->exit_code != -1) codes.insert(process->exit_code);
  }
  // A rank that is killed while it ends fails the run, though all has been saved.
  // Nor has a start ended well that a launcher which died never took part in, though all was trained before it.
  const Group& group = training_.groups().rbegin()->second;
  const bool ends_well = !lost_one && group.ends_well && !group.has_failed && training_.is_complete();
  const bool has_saved = training_.is_complete() || training_.has_stopped_well();
  if (ends_well ? codes.size() != 1 || *codes.begin() != 0 : !has_saved && codes.count(0) != 0)
    violate("exit codes of the last round do not tell how it ended");
  if (codes.size() > 1) violate("launchers of the last round end with different codes");
}

Verdict Cluster::run() {
  double& last = last_fault_;
  for (int machine = 0; machine < scenario_.num_machines; ++machine) {
    const double start = scenario_.starts[static_cast<size_t>(machine)];
    last = std::max(last, start);
    fibers_.at(nanoseconds(start), [this, machine] { start_launcher(machine); });
  }
  for (const Fault& fault : scenario_.faults) {
    last = std::max(last, fault.time);
    fibers_.at(nanoseconds(fault.time), [this, fault] { happen(fault); });
  }
  fibers_.at(0, [this] { watch(); });
  fibers_.run(nanoseconds(last + kTimeToEnd));
  check_end();
  Verdict verdict;
  verdict.violation = violation_;
  verdict.num_rounds = std::ssize(training_.groups());
  verdict.num_held = training_.num_held();
  for (int64_t number = 0; store_.has(key(number, "world")); ++number)
    verdict.num_never_begun += store_.value(key(number, "begins")) == "yes" ? 0 : 1;
  verdict.is_complete = training_.is_complete();
  verdict.num_named = training_.num_named();
  verdict.num_alarms = watch_.num_alarms();
  verdict.seconds = seconds_of(last_end_);
  for (const auto& process : processes_) verdict.exit_codes.push_back(process->exit_code);
  for (const auto& process : processes_)
    if (process->is_alive) kill(*process);
  return verdict;
}

}  // namespace

Verdict simulate(const Scenario& scenario, bool shows) {
  Cluster cluster(scenario, shows);
  return cluster.run();
}

}  // namespace espalier::control_plane
