// The signals that a launcher takes: blocked for the process's threads and fetched one by one.
#pragma once

#include <signal.h>

#include <cmath>
#include <ctime>
#include <optional>

namespace espalier::launch::internal {

// To be constructed before there are other threads, which inherit the block. Ranks are started with none blocked.
class TakenSignals {
 public:
  TakenSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~TakenSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  TakenSignals(const TakenSignals&) = delete;
  TakenSignals& operator=(const TakenSignals&) = delete;

  static bool ends(int signal) {
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
  }

  // Nothing if none came in that time.
  std::optional<int> wait(double seconds) const {
    timespec time = {};
    time.tv_sec = static_cast<time_t>(seconds);
    time.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
    const int signal = sigtimedwait(&set_, nullptr, &time);
    return signal > 0 ? std::optional<int>(signal) : std::nullopt;
  }
  std::optional<int> poll() const { return wait(0); }

 private:
  sigset_t set_, before_;
};

}  // namespace espalier::launch::internal
