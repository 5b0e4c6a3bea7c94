#include "launch/alert_sender.h"

#include <fcntl.h>

#include <chrono>
#include <csignal>

#include "base/error.h"
#include "base/format.h"
#include "launch/environment.h"
#include "launch/worker_group.h"

namespace espalier::launch {
namespace {

constexpr double kSecondsToEnd = 10;
constexpr auto kLookAtCommand = std::chrono::milliseconds(20);

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

AlertSender::AlertSender(AlertSenderOptions options) : options_(std::move(options)), thread_([this] { run(); }) {}

AlertSender::~AlertSender() {
  {
    const std::lock_guard lock(mutex_);
    last_moment_ = monotonic_seconds() + kSecondsToEnd;
  }
  changed_.notify_all();
  thread_.join();
}

void AlertSender::send(const std::string& alert) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(alert);
  }
  changed_.notify_all();
}

void AlertSender::run() {
  // Signals are for the launcher's own thread.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (true) {
    std::string alert;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !waiting_.empty() || last_moment_ > 0; });
      if (waiting_.empty()) return;
      alert = waiting_.front();
      waiting_.pop_front();
    }
    deliver(alert);
  }
}

void AlertSender::deliver(const std::string& alert) {
  std::string why = "the launcher ends";
  for (size_t tries = 0; !is_late(); ++tries) {
    why = try_once(alert);
    if (why.empty()) {
      if (options_.on_delivered) options_.on_delivered(alert);
      return;
    }
    if (tries == options_.pauses_seconds.size() || !pause(options_.pauses_seconds[tries])) break;
  }
  if (options_.on_failure) options_.on_failure(alert, why);
}

std::string AlertSender::try_once(const std::string& alert) const {
  Worker worker;
  worker.command = {"sh", "-c", "printf '%s\\n' \"$ESPALIER_ALERT\" | {\n" + options_.command + "\n}"};
  worker.variables = process_variables();
  worker.variables["ESPALIER_ALERT"] = alert;
  // Standard output is reserved for what the ranks print.
  worker.stdout_to = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  try {
    WorkerGroup group({worker});
    const double end = monotonic_seconds() + options_.timeout_seconds;
    for (group.reap(); group.num_running() > 0; group.reap()) {
      if (monotonic_seconds() > end || is_late()) {
        group.stop(SIGKILL, 0);
        return concat("it had not ended after ", format_duration(options_.timeout_seconds));
      }
      std::this_thread::sleep_for(kLookAtCommand);
    }
    if (!group.any_failed()) return "";
    const Failure& failure = group.failures().front();
    return failure.signal != 0 ? concat("signal ", failure.signal) : concat("exit code ", failure.exit_code);
  } catch (const UserError& error) {
    return error.what();
  }
}

bool AlertSender::pause(double seconds) {
  const double end = monotonic_seconds() + seconds;
  while (monotonic_seconds() < end) {
    if (is_late()) return false;
    std::this_thread::sleep_for(kLookAtCommand);
  }
  return true;
}

bool AlertSender::is_late() const {
  const std::lock_guard lock(mutex_);
  return last_moment_ > 0 && monotonic_seconds() > last_moment_;
}

}  // namespace espalier::launch
