#include "base/stop_signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "base/log.h"

namespace espalier {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
constexpr double kSecondsForTheLast = 2;

volatile sig_atomic_t first_signal = 0;
int depth = 0;  // of nested objects
struct sigaction previous[std::size(kSignals)];

// Read by the handler: one text is read while the other is written.
constexpr size_t kLongest = 200;
char awaited[2][kLongest + 1] = {"the start of the program", ""};
std::atomic<int> shown_text{0};
std::atomic<bool> speaks{true};
bool erases_line = false;  // stderr is a terminal, perhaps with a live line

std::atomic<bool> asked{false};
timespec asked_at;

const char* name_of(int number) {
  switch (number) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    case SIGUSR1: return "SIGUSR1";
    default: return "a signal";
  }
}

// A line put together without memory from the heap, as a handler must.
class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text != 0 && size_ + 2 < sizeof text_) text_[size_++] = *text++;
    return *this;
  }
  void say() {
    if (!speaks.load()) return;
    text_[size_++] = '\n';
    const ssize_t written = ::write(STDERR_FILENO, text_, size_);
    static_cast<void>(written);  // there is nobody else to tell
  }

 private:
  char text_[640];
  size_t size_ = 0;
};

double seconds_since_asked() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec - asked_at.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec - asked_at.tv_nsec);
}

void take(int number) {
  const char* const what = awaited[shown_text.load()];
  const char* const start = erases_line ? "\r\033[K" : "";
  if (first_signal == 0) {
    first_signal = number;
    Line line;
    line << start << name_of(number) << " received: shutting down cleanly; waiting for: " << what;
    if (number == SIGINT) line << ". Press Ctrl-C twice more to stop without waiting";
    line.say();
  } else if (number == SIGINT && asked.load() && seconds_since_asked() < kSecondsForTheLast) {
    Line line;
    line << start << "ended by Ctrl-C: what was not saved is lost (exit code 130)";
    line.say();
    _exit(static_cast<int>(ExitCode::kInterrupted));
  } else if (number == SIGINT) {
    clock_gettime(CLOCK_MONOTONIC, &asked_at);
    asked.store(true);
    Line line;
    line << start << "still waiting for: " << what
         << ". To end now and lose what is not saved, press Ctrl-C once more within two seconds";
    line.say();
  }
}

void note_stop_signal(int number) {
  const int kept = errno;
  take(number);
  errno = kept;
}

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kSignals) sigaddset(&set, number);
  return set;
}

}  // namespace

StopSignals::StopSignals() {
  if (depth++ > 0) return;
  first_signal = 0;
  asked = false;
  erases_line = stderr_is_terminal();
  struct sigaction action = {};
  action.sa_handler = note_stop_signal;
  action.sa_mask = stop_signals();
  action.sa_flags = SA_RESTART;
  for (size_t index = 0; index < std::size(kSignals); ++index) {
    sigaction(kSignals[index], nullptr, &previous[index]);
    if (kSignals[index] == SIGHUP && previous[index].sa_handler == SIG_IGN) continue;
    sigaction(kSignals[index], &action, nullptr);
  }
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

StopSignals::~StopSignals() {
  if (--depth > 0) return;
  for (size_t index = 0; index < std::size(kSignals); ++index) sigaction(kSignals[index], &previous[index], nullptr);
}

std::optional<std::string> StopSignals::received() const {
  if (first_signal == 0) return std::nullopt;
  return name_of(first_signal);
}

void set_awaited(const std::string& what) {
  const int next = 1 - shown_text.load();
  const size_t size = std::min(what.size(), kLongest);
  std::memcpy(awaited[next], what.data(), size);
  awaited[next][size] = 0;
  shown_text.store(next);
}

void acknowledge_signals(bool does) { speaks = does; }

void hold_stop_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace espalier
