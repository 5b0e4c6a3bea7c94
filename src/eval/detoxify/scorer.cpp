#include "eval/detoxify/scorer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace espalier::eval {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSecondsToEnd = 5;

// While one exists, this thread gets EPIPE where it writes to a program that has ended, and no signal.
class BrokenPipesAreErrors {
 public:
  BrokenPipesAreErrors() {
    sigemptyset(&broken_pipe_);
    sigaddset(&broken_pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
  }
  ~BrokenPipesAreErrors() {
    const timespec none = {};
    while (sigtimedwait(&broken_pipe_, nullptr, &none) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipesAreErrors(const BrokenPipesAreErrors&) = delete;
  BrokenPipesAreErrors& operator=(const BrokenPipesAreErrors&) = delete;

 private:
  sigset_t broken_pipe_, before_;
};

void close_end(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

struct Pipe {
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) throw UserError(concat("cannot make a pipe: ", std::strerror(errno)));
  }
  ~Pipe() {
    for (int& end : ends) close_end(end);
  }
  int take(int which) {
    const int end = std::exchange(ends[which], -1);
    ::fcntl(end, F_SETFL, O_NONBLOCK);
    return end;
  }
  int ends[2];
};

constexpr int kMayNotRun = 126, kNotFound = 127;  // of a shell, about a command

// A group of its own, with the signals as a shell starts programs. 0, or errno.
int start(const std::string& command, int input, int output, pid_t& process) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, plain;
  sigemptyset(&none);
  sigemptyset(&plain);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&plain, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &plain);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const char* const words[] = {"/bin/sh", "-c", command.c_str(), nullptr};
  const int error = posix_spawn(&process, words[0], &files, &attributes, const_cast<char**>(words), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

std::string described(int status) {
  if (WIFSIGNALED(status)) return concat("was killed by signal ", WTERMSIG(status));
  return concat("ended with exit code ", WEXITSTATUS(status));
}

// False where it still runs after that many seconds.
bool wait_for(pid_t process, double seconds, int& status) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, std::chrono::milliseconds(100))) {
    if (::waitpid(process, &status, WNOHANG) == process) return true;
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

ScorerProcess::ScorerProcess(const std::string& command) {
  Pipe input, output;
  if (const int error = start(command, input.ends[0], output.ends[1], process_); error != 0)
    throw UserError(concat("cannot start '", command, "': ", std::strerror(error)));
  to_ = input.take(1);
  from_ = output.take(0);
}

ScorerProcess::~ScorerProcess() {
  if (process_ < 0) return;
  end_input();
  const double waited = std::chrono::duration<double>(Clock::now() - input_ended_).count();
  int status = 0;
  if (wait_for(process_, kSecondsToEnd - waited, status)) process_ = -1;
  if (process_ >= 0) kill_it("");
  close_end(from_);
}

void ScorerProcess::end_input() {
  if (to_ < 0) return;
  close_end(to_);
  input_ended_ = Clock::now();
}

ScorerProcess::Exchange ScorerProcess::exchange(const std::vector<std::string>& lines, double seconds) {
  ESPALIER_CHECK(process_ >= 0, "an exchange after a failure");
  const BrokenPipesAreErrors quiet;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  std::string_view rest = text;
  Exchange result;
  auto last_answer = Clock::now();
  while (result.answers.size() < lines.size()) {
    const double waited = std::chrono::duration<double>(Clock::now() - last_answer).count();
    if (waited >= seconds) {
      result.failure =
          kill_it(concat("has answered ", result.answers.size(), " of ", lines.size(), " lines, and none for ",
                         format_shortest(seconds), " seconds (does it flush its output after each line?)"));
      return result;
    }
    pollfd ends[2] = {{from_, POLLIN, 0}, {rest.empty() ? -1 : to_, POLLOUT, 0}};
    ::poll(ends, 2, static_cast<int>(std::min(1e6, 1 + 1000 * (seconds - waited))));
    if (ends[1].revents != 0 && !write_some(rest)) rest = {};  // it reads no more: it may still answer what it has read
    if (ends[0].revents == 0) continue;
    const bool open = read_some();
    for (size_t end; result.answers.size() < lines.size() && (end = unread_.find('\n')) != std::string::npos;) {
      result.answers.push_back(unread_.substr(0, end));
      unread_.erase(0, end + 1);
      last_answer = Clock::now();
    }
    if (open || result.answers.size() == lines.size()) continue;
    end_of_process(result);
    return result;
  }
  return result;
}

bool ScorerProcess::write_some(std::string_view& rest) {
  const ssize_t size = ::write(to_, rest.data(), rest.size());
  if (size > 0) rest.remove_prefix(static_cast<size_t>(size));
  return size >= 0 || errno == EAGAIN || errno == EINTR;
}

bool ScorerProcess::read_some() {
  char piece[1 << 16];
  const ssize_t size = ::read(from_, piece, sizeof piece);
  if (size > 0) unread_.append(piece, static_cast<size_t>(size));
  return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
}

// After the end of its output.
void ScorerProcess::end_of_process(Exchange& result) {
  close_end(to_);
  close_end(from_);
  int status = 0;
  if (!wait_for(process_, kSecondsToEnd, status)) {
    result.failure = kill_it("has closed its output but keeps running");
    return;
  }
  ::kill(-process_, SIGKILL);  // what it has left running
  process_ = -1;
  result.failure = described(status);
  result.cannot_run = WIFEXITED(status) && (WEXITSTATUS(status) == kMayNotRun || WEXITSTATUS(status) == kNotFound);
}

std::string ScorerProcess::kill_it(const std::string& why) {
  close_end(to_);
  close_end(from_);
  ::kill(-process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  process_ = -1;
  return why;
}

}  // namespace espalier::eval
