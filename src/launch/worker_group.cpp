#include "launch/worker_group.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/host_name.h"
#include "base/log.h"
#include "launch/error_file.h"
#include "launch/internal/number.h"
#include "launch/internal/oom_kills.h"
#include "launch/internal/process_state.h"
#include "launch/internal/socket.h"
#include "launch/output.h"

namespace espalier::launch {
namespace {

namespace fs = std::filesystem;

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string path_of_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0 && !fs::is_directory(candidate)) return candidate;
  }
  throw UserError(concat("cannot start ", name, ": there is no such program in PATH"), ExitCode::kMissingInput);
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Those of this machine that belong to one of the sessions.
std::vector<pid_t> processes_of(const std::set<pid_t>& sessions, bool only_children) {
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), last; !error && entry != last; entry.increment(error)) {
    const auto pid = static_cast<pid_t>(parse_whole(entry->path().filename()).value_or(0));
    if (pid == 0) continue;
    const internal::ProcessState process = internal::state_of_main_thread(pid);
    if (sessions.contains(process.session) && (!only_children || process.parent == getpid())) found.push_back(pid);
  }
  return found;
}

// Orphans of these sessions, killed, that came to us. Other children of ours are other groups', who ask for their ends
// themselves.
void bury_orphans(const std::set<pid_t>& sessions) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    const std::vector<pid_t> orphans = processes_of(sessions, /*only_children=*/true);
    if (orphans.empty()) return;
    for (const pid_t pid : orphans) waitpid(pid, nullptr, WNOHANG);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// In the child, between fork and exec: only what POSIX allows there.
struct Child {
  const char* program;
  char** arguments;
  char** variables;
  int output, errors, report;  // `report` closes on exec, or gets errno
  int line;                    // that stays open; -1: none
  pid_t launcher;

  [[noreturn]] void run() const {
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(127);
    struct sigaction plain = {};
    plain.sa_handler = SIG_DFL;
    for (const int signal : {SIGXFSZ, SIGPIPE, SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD})
      sigaction(signal, &plain, nullptr);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (output >= 0) dup2(output, STDOUT_FILENO);
    if (errors >= 0) dup2(errors, STDERR_FILENO);
    if (line >= 0) fcntl(line, F_SETFD, 0);
    execve(program, arguments, variables);
    const int reason = errno;
    const ssize_t written = write(report, &reason, sizeof reason);
    _exit(written > 0 ? 127 : 126);
  }
};

}  // namespace

WorkerGroup::WorkerGroup(std::vector<Worker> workers) : workers_(std::move(workers)), processes_(workers_.size()) {
  num_oom_kills_ = internal::num_oom_kills();
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a rank leaves running stays in reach
  try {
    for (size_t index = 0; index < workers_.size(); ++index) start(index);
  } catch (...) {
    stop(SIGKILL, 0);
    throw;
  }
}

WorkerGroup::~WorkerGroup() {
  try {
    stop(SIGKILL, 0);
  } catch (const std::exception& error) {
    log_warning("some processes of the ranks may be left: ", error.what());
  }
}

void WorkerGroup::start(size_t index) {
  Worker& worker = workers_[index];
  const std::string program = path_of_program(worker.command.at(0));
  auto line = worker.can_be_held ? std::make_unique<HoldLine>() : nullptr;
  if (line) worker.variables[kHoldVariable] = line->variable();
  std::vector<std::string> variables;
  for (const auto& [name, value] : worker.variables) variables.push_back(name + "=" + value);
  const std::vector<char*> arguments = pointers_to(worker.command), environment = pointers_to(variables);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw UserError(concat("cannot make a pipe: ", std::strerror(errno)));
  const internal::Descriptor reader(ends[0]), output(worker.stdout_to), errors(worker.stderr_to);
  internal::Descriptor writer(ends[1]);
  worker.stdout_to = worker.stderr_to = -1;
  const Child child{program.c_str(),
                    const_cast<char**>(arguments.data()),
                    const_cast<char**>(environment.data()),
                    output.get(),
                    errors.get(),
                    writer.get(),
                    line ? line->rank_end() : -1,
                    getpid()};
  const pid_t pid = fork();
  if (pid == 0) child.run();
  if (pid < 0) throw UserError(concat("cannot start rank ", worker.rank, ": ", std::strerror(errno)));
  if (line) line->close_rank_end();
  processes_[index] = {.pid = pid, .running = true, .status = 0, .line = std::move(line)};
  writer.reset();
  int reason = 0;
  if (read(reader.get(), &reason, sizeof reason) == static_cast<ssize_t>(sizeof reason))
    throw UserError(concat("cannot start ", program, ": ", std::strerror(reason)), ExitCode::kMissingInput);
}

// Ended ranks are left for stop() to reap: until then nobody else gets their number, so that killing what
// is left of their sessions hits no stranger.
void WorkerGroup::reap() {
  any_lacked_memory_.reset();
  for (size_t index = 0; index < processes_.size(); ++index) {
    siginfo_t info = {};
    if (!processes_[index].running) continue;
    if (waitid(P_PID, processes_[index].pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    note_end(index, info.si_pid, info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status);
  }
}

// Among those that are found together the kernel does not say which.
bool WorkerGroup::any_lacked_memory() {
  if (any_lacked_memory_) return *any_lacked_memory_;
  const int64_t before = std::exchange(num_oom_kills_, internal::num_oom_kills());
  any_lacked_memory_ = num_oom_kills_ > before;
  return *any_lacked_memory_;
}

void WorkerGroup::note_end(size_t index, pid_t pid, int status) {
  processes_[index].running = false;
  processes_[index].status = status;
  if (status == 0) return;
  const Worker& worker = workers_[index];
  Failure failure;
  failure.rank = worker.rank, failure.local_rank = worker.local_rank;
  failure.host = host_name();
  failure.pid = pid;
  failure.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  failure.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  failure.time = seconds_since_epoch();
  failure.message = processes_[index].hung;
  if (failure.signal == SIGKILL && failure.message.empty() && !stopping_) failure.lacked_memory = any_lacked_memory();
  if (const Sight sight = worker.sight ? worker.sight() : Sight{}; sight.is_open)
    failure.phase = to_string(sight.phase), failure.step = sight.step;
  if (const auto error = read_error_file(worker.error_file)) {
    failure.error_file = worker.error_file;
    failure.message = error->message;
    failure.time = std::chrono::duration<double>(error->time.time_since_epoch()).count();
    // It was on its way out when it was stopped: what it says counts, not our signal.
    if (stopping_ && failure.signal != 0 && error->exit_code) {
      failure.signal = 0;
      failure.exit_code = *error->exit_code;
    }
  }
  // What fails after the others were told to stop is not a cause, unless it says itself that it failed before.
  if (stopping_ && (failure.error_file.empty() || failure.time > stop_time_)) return;
  if (!worker.stderr_file.empty()) failure.last_lines = last_lines_of(worker.stderr_file, 10);
  failures_.push_back(std::move(failure));
}

int64_t WorkerGroup::num_running() const {
  return std::count_if(processes_.begin(), processes_.end(), [](const Process& process) { return process.running; });
}

bool WorkerGroup::all_well() const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const Process& process) { return !process.running && process.status == 0; });
}

void WorkerGroup::send(int signal) const {
  for (const Process& process : processes_)
    if (process.running) kill(-process.pid, signal);
}

std::vector<pid_t> WorkerGroup::pids() const {
  std::vector<pid_t> pids;
  for (const Process& process : processes_) pids.push_back(process.running ? process.pid : -1);
  return pids;
}

void WorkerGroup::end_hung(size_t index, const std::string& why) {
  Process& process = processes_.at(index);
  if (!process.running) return;
  process.hung = why;
  kill(-process.pid, SIGKILL);
}

void WorkerGroup::stop(int signal, double patience_seconds) {
  if (!stopping_) stop_time_ = seconds_since_epoch();
  stopping_ = true;
  for (Process& process : processes_)
    if (process.line) process.line->close();  // nobody is held any more
  reap();
  if (num_running() > 0) send(signal);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_seconds);
  while (num_running() > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    reap();
  }
  std::vector<size_t> all;
  for (size_t index = 0; index < processes_.size(); ++index) all.push_back(index);
  bury(all);
}

void WorkerGroup::look_who_is_held() {
  for (Process& process : processes_) process.is_held = process.running && process.line && process.line->is_held();
}

bool WorkerGroup::any_offered() const {
  return std::any_of(processes_.begin(), processes_.end(), [](const Process& process) {
    return process.running && process.line && process.line->is_offered();
  });
}

void WorkerGroup::hold(double patience_seconds) {
  if (!stopping_) stop_time_ = seconds_since_epoch();
  stopping_ = true;
  for (const Process& process : processes_)
    if (process.running && !(process.line && process.line->is_offered())) kill(-process.pid, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_seconds);
  const auto any_must_end = [this] {
    reap();
    look_who_is_held();
    return std::any_of(processes_.begin(), processes_.end(), [this](const auto& process) { return must_end(process); });
  };
  while (any_must_end() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::vector<size_t> others;
  std::string late;
  for (size_t index = 0; index < processes_.size(); ++index) {
    if (processes_[index].is_held) continue;
    others.push_back(index);
    if (must_end(processes_[index])) late += concat(late.empty() ? "" : ", ", workers_[index].rank);
  }
  if (!late.empty())
    log_info("not ready to go on within ", format_duration(patience_seconds), ", and started anew: rank ", late);
  bury(others);
}

int64_t WorkerGroup::num_held() const {
  return std::count_if(processes_.begin(), processes_.end(), [](const Process& process) { return process.is_held; });
}

void WorkerGroup::start_again(std::vector<Worker> workers) {
  num_oom_kills_ = internal::num_oom_kills();
  stopping_ = false;
  failures_.clear();
  try {
    for (size_t index = 0; index < processes_.size(); ++index) {
      Process& process = processes_[index];
      if (!process.is_held) {
        workers_[index] = std::move(workers[index]);
        start(index);
        continue;
      }
      workers[index].stderr_file = workers_[index].stderr_file;  // its streams are what they were
      workers_[index] = std::move(workers[index]);
      process.is_held = false;
      process.stray_since.reset();
      // One that does not hear it ends, or is ended as one that does nothing.
      if (!process.line->start(workers_[index].variables)) kill(-process.pid, SIGKILL);
    }
  } catch (...) {
    stop(SIGKILL, 0);
    throw;
  }
}

void WorkerGroup::let_go_of_strays() {
  constexpr auto kPatience = std::chrono::seconds(2);  // to hear of the end of another rank, or of its machine
  const auto now = std::chrono::steady_clock::now();
  for (Process& process : processes_) {
    if (!process.running || !process.line || !process.line->is_held()) continue;
    if (!process.stray_since) process.stray_since = now;
    if (now - *process.stray_since >= kPatience) process.line->close();
  }
}

// Kills those that run, and what is left of their sessions: groups first, then whatever has left its group but not the
// session.
void WorkerGroup::bury(const std::vector<size_t>& indices) {
  std::set<pid_t> sessions;
  for (const size_t index : indices) {
    const Process& process = processes_[index];
    if (process.pid > 0) sessions.insert(process.pid);
    if (process.running) kill(-process.pid, SIGKILL);
  }
  if (sessions.empty()) return;
  for (const pid_t pid : processes_of(sessions, /*only_children=*/false)) kill(pid, SIGKILL);
  for (const size_t index : indices) {
    int status = 0;
    const pid_t pid = std::exchange(processes_[index].pid, -1);
    if (pid < 0 || waitpid(pid, &status, 0) < 0) continue;
    if (processes_[index].running) note_end(index, pid, status);
  }
  bury_orphans(sessions);
}

}  // namespace espalier::launch
